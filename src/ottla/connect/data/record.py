"""One record on its way between a topic and a connector."""

from dataclasses import dataclass, field
from typing import Any

from ottla.connect.data.schema import Schema


@dataclass(frozen=True, slots=True)
class Header:
    key: str
    value: Any
    schema: Schema | None = None


@dataclass(slots=True)
class Record:
    """A key and a value with their schemas. None as the value of a keyed record is a tombstone."""

    topic: str
    value: Any
    value_schema: Schema | None = None
    key: Any = None
    key_schema: Schema | None = None
    timestamp: int | None = None
    """Milliseconds since 1970."""
    headers: list[Header] = field(default_factory=list)
    partition: int | None = None
    """Of a record for a sink, where it is; of a source's record, where it must go, or None for any partition."""
    offset: int | None = None
    """Of a record for a sink."""
