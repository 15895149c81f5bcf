"""Quotas of users, client ids and addresses, as the cluster keeps them."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client

KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
TYPES = {"user": "user", "client": "client-id", "ip": "ip"}
"""What the command line calls an entity -> what Kafka calls it."""
DEFAULT = "<default>"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)(?:B|iB)?", re.IGNORECASE)

Entity = Mapping[str, str | None]
"""Type of the command line -> name; None is the default of the type."""


class Quota(NamedTuple):
    user: str | None
    client: str | None
    ip: str | None
    quota: str
    value: float


def parse_amount(key: str, text: str) -> float:
    """`1048576`, `1M` or `0.5`."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise CommandError(f"{key}: {text!r} is not a number such as 1048576 or 10M", USAGE_ERROR)
    amount = float(found[1]) * _UNITS[found[2].upper()]
    if not math.isfinite(amount):
        raise CommandError(f"{key}: {text!r} is too large", USAGE_ERROR)
    return amount


def check_key(key: str) -> None:
    if key not in KEYS:
        hint = suggest(key, KEYS) or f"; there are {', '.join(KEYS)}"
        raise CommandError(f"there is no quota {key!r}{hint}", USAGE_ERROR)


def find_quotas(client: "Client", entity: Entity, *, strict: bool = False) -> list[Quota]:
    """Quotas of every entity that has these parts; `strict`: and no others."""
    from ottla.client.connection import name_error
    from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

    components = [
        ComponentData(entity_type=TYPES[kind], match_type=1 if name is None else 0, match=name)
        for kind, name in entity.items()
    ]
    answer = client.ask_any(DescribeClientQuotasRequest(components=components, strict=strict))
    if answer.error_code:
        name = name_error(answer.error_code)
        raise CommandError(f"cannot list quotas: {answer.error_message or name} ({name})")
    found = []
    for entry in answer.entries or ():
        parts = {part.entity_type: part.entity_name or DEFAULT for part in entry.entity}
        user, client_id, ip = (parts.get(kind) for kind in TYPES.values())
        found += [Quota(user, client_id, ip, value.key, _shorten(value.value)) for value in entry.values]
    return sorted(found, key=lambda quota: tuple(part or "" for part in quota[:4]))


def format_amount(value: float) -> str:
    return str(_shorten(float(value)))


def _shorten(value: float) -> float:
    """Whole numbers without a fraction, as people have typed them."""
    return int(value) if value.is_integer() else value


def alter_quotas(
    client: "Client", entity: Entity, values: Mapping[str, float], removed: Iterable[str] = (), *, dry_run: bool = False
) -> None:
    from ottla.client.connection import name_error
    from ottla.wire.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasRequestEntityData,
        AlterClientQuotasRequestEntryData,
        OpData,
    )

    parts = [
        AlterClientQuotasRequestEntityData(entity_type=TYPES[kind], entity_name=name) for kind, name in entity.items()
    ]
    changes = [OpData(key=key, value=value) for key, value in values.items()]
    changes += [OpData(key=key, remove=True) for key in removed]
    entry = AlterClientQuotasRequestEntryData(entity=parts, ops=changes)
    answer = client.ask_any(AlterClientQuotasRequest(entries=[entry], validate_only=dry_run))
    for result in answer.entries:
        if result.error_code:
            name = name_error(result.error_code)
            raise CommandError(f"{describe_entity(entity)}: {result.error_message or name} ({name})")


def describe_entity(entity: Entity) -> str:
    return ", ".join(f"{kind} {name!r}" if name is not None else f"default {kind}" for kind, name in entity.items())
