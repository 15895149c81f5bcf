"""Quotas of users, client ids and addresses."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.client import Client
from ottla.console.facts.settings import raise_for_code
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.wire.messages.describe_client_quotas import DescribeClientQuotasRequest

KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
TYPES = ("user", "client-id", "ip")
DEFAULT = "<default>"
"""How people name those that have no quota of their own, as in Kafka's tools."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)(?:B|iB)?", re.IGNORECASE)

Entity = Mapping[str, str]
"""Kafka's type -> name, or DEFAULT."""


class Quota(NamedTuple):
    entity: list[tuple[str, str]]
    """Type and name, such as user and alice, in the order of TYPES."""
    key: str
    value: float


def list_quotas(client: Client) -> list[Quota]:
    answer = client.ask_any(DescribeClientQuotasRequest(components=[], strict=False))
    raise_for_code(answer.error_code, answer.error_message, "quotas")
    found = []
    for each in answer.entries or ():
        parts = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in each.entity}
        entity = [(kind, parts[kind]) for kind in TYPES if kind in parts]
        found += [Quota(entity, value.key, value.value) for value in each.values]
    return sorted(found)


def change_quota(client: Client, entity: Entity, key: str, value: float | None) -> None:
    """Set a quota; None removes it. Raises KafkaError if it is refused."""
    parts = [
        AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=None if name == DEFAULT else name)
        for kind, name in entity.items()
    ]
    change = OpData(key=key, remove=True) if value is None else OpData(key=key, value=value)
    entry = AlterClientQuotasRequestEntryData(entity=parts, ops=[change])
    for each in client.ask_any(AlterClientQuotasRequest(entries=[entry])).entries:
        raise_for_code(each.error_code, each.error_message, describe_entity(entity))


def describe_entity(entity: Entity) -> str:
    return ", ".join(f"default {kind}" if name == DEFAULT else f"{kind} {name}" for kind, name in entity.items())


def parse_amount(text: str) -> float:
    """`1048576`, `1M` or `0.5`. Raises ValueError."""
    found = _AMOUNT.fullmatch(text.strip())
    amount = float(found[1]) * _UNITS[found[2].upper()] if found else math.inf
    if not math.isfinite(amount):
        raise ValueError(f"{text!r} is not a number such as 1048576 or 10M")
    return amount


def write_amount(value: float) -> str:
    """Whole numbers without a fraction, as people have typed them."""
    return str(int(value)) if value.is_integer() else str(value)
