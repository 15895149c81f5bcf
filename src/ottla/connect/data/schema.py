"""Schemas of Kafka Connect: the type of a key, a value or a header.

A value without a schema is what JSON can say: dict, list, str, int, float, bool or None. With a schema, a STRUCT and a
MAP are dicts (a MAP's keys may be of any type), an ARRAY is a list, BYTES are bytes. The logical types of Kafka Connect
are named schemas: their values are `decimal.Decimal`, `datetime.date`, `datetime.time` and `datetime.datetime` in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final


class Type(Enum):
    """By Kafka Connect's names, which are the values in JSON schemas too."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
LOGICAL_NAMES: Final = frozenset((DECIMAL, DATE, TIME, TIMESTAMP))


@dataclass(frozen=True)
class Schema:
    """A type with what Kafka Connect says about it besides. Equal schemas describe equal data."""

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Any = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """`scale` of a decimal, for example."""
    fields: tuple["Field", ...] = ()
    """Of a STRUCT, in order."""
    key_schema: "Schema | None" = None
    """Of a MAP."""
    value_schema: "Schema | None" = None
    """Of the elements of an ARRAY, or of the values of a MAP."""

    def find_field(self, name: str) -> "Field | None":
        return next((each for each in self.fields if each.name == name), None)


@dataclass(frozen=True)
class Field:
    name: str
    schema: Schema
