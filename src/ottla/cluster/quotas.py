"""Quotas in the metadata: who they are for, the decider that changes them, and the filter that finds them.

An entity is a user, a client id, both together, or an address. A name that is None means the default: whoever has no
quota of its own. Checks and error codes are Kafka's, with two exceptions: an address must be written as one, because
replay looks up no names, and a number must be finite.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from immutables import Map

from ottla.cluster.changes import QuotaName, SetQuota, quota_order
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

Entity = tuple[QuotaName, ...]
"""Sorted by type."""

_ANY_NUMBER = math.inf
_CLIENT_KEYS = {
    PRODUCER_BYTE_RATE: 2.0**63,
    CONSUMER_BYTE_RATE: 2.0**63,
    REQUEST_PERCENTAGE: _ANY_NUMBER,
    CONTROLLER_MUTATION_RATE: _ANY_NUMBER,
}
"""Quotas of users and client ids, each with its largest value. Those with a limit are whole numbers."""

_ADDRESS_KEYS = {CONNECTION_CREATION_RATE: 2.0**31 - 1}

NAME_BYTES_MAX = (1 << 15) - 1
"""The protocol has no longer strings before its flexible versions."""


class QuotaAlteration(NamedTuple):
    """New values of one entity. None removes a value."""

    entity: Entity
    values: Mapping[str, float | None]


class Match(NamedTuple):
    """A part of a filter: the type of a name, and a test of the name."""

    type: str
    accepts: Callable[[str | None], bool]


def make_entity(names: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity with these names, by type. If a type is named twice, the last one counts, as in Kafka."""
    return tuple(QuotaName(kind, name) for kind, name in sorted(dict(names).items()))


def alter_quotas(image: Image, alterations: Sequence[QuotaAlteration]) -> Decision[list[KafkaError | None]]:
    """Change quotas. Entities are independent: the result has None or an error for each."""
    changes: list[SetQuota] = []
    results: list[KafkaError | None] = []
    for entity, values in alterations:
        try:
            changes.extend(_alter(image, entity, values))
            results.append(None)
        except KafkaError as error:
            results.append(error)
    return Decision(changes, results)


def _alter(image: Image, entity: Entity, values: Mapping[str, float | None]) -> list[SetQuota]:
    keys = _find_keys(entity)
    before: Mapping[str, float] = image.quotas.get(entity, Map())
    changes = []
    for key in sorted(values):
        value = values[key]
        if value is not None:
            check_value(keys, key, value)
        if before.get(key) != value:
            changes.append(SetQuota(entity, key, value))
    return changes


def _find_keys(entity: Entity) -> Mapping[str, float]:
    """Which quotas the entity can have. KafkaError if there is no such entity."""
    if not entity:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a quota needs a user, a client id or an address")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no quotas for entities of type {kind!r}")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the {kind} is empty; leave it null for the default")
        if name is not None and len(name.encode()) > NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the {kind} is longer than {NAME_BYTES_MAX} bytes")
    names = dict(entity)
    if IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an address cannot be combined with a user or a client id")
    address = names[IP]
    if address is not None and normalize_address(address) is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{address!r} is not an IP address")
    return _ADDRESS_KEYS


def check_value(keys: Mapping[str, float], key: str, value: float) -> None:
    """INVALID_REQUEST if the entity cannot have this quota, or not this value."""
    if key not in keys:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no quota {key!r} for this entity: {', '.join(keys)}")
    if not 0 < value < math.inf:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} must be a number greater than 0")
    if keys[key] is not _ANY_NUMBER:
        if value > keys[key]:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key}: {value} is too large")
        if value % 1.0 > 1e-6:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} must be a whole number")


def normalize_address(text: str) -> str | None:
    """The spelling of an IP address that sockets use; None if the text is no IP address."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def find_quotas(image: Image, wanted: Sequence[Match], strict: bool) -> list[tuple[Entity, Mapping[str, float]]]:
    """The entities that have every type of name in `wanted` with an accepted name; if `strict`, no other types."""
    return [
        (entity, image.quotas[entity])
        for entity in sorted(image.quotas, key=quota_order)
        if _is_match(dict(entity), wanted, strict)
    ]


def _is_match(names: Mapping[str, str | None], wanted: Sequence[Match], strict: bool) -> bool:
    if strict and len(names) != len(wanted):
        return False
    return all(match.type in names and match.accepts(names[match.type]) for match in wanted)
