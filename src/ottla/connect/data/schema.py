"""Schemas of Kafka Connect: the type of a key, a value or a header.

A value without a schema is what JSON can say: dict, list, str, int, float, bool or None. With a schema, a STRUCT and a
MAP are dicts (a MAP's keys may be of any type), an ARRAY is a list, BYTES are bytes. The logical types of Kafka Connect
are named schemas: their values are `decimal.Decimal`, `datetime.date`, `datetime.time` and `datetime.datetime` in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
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
    is_inferred: bool = field(default=False, compare=False)
    """Found out from a batch of values that have no schema, so that they can be columns. Another batch may have another
    one, and records that are made of the columns have none."""

    def find_field(self, name: str) -> "Field | None":
        return self._fields_by_name.get(name)

    @cached_property
    def _fields_by_name(self) -> "dict[str, Field]":
        return {each.name: each for each in self.fields}

    def __hash__(self) -> int:
        """Schemas are keys of caches that are asked for each record, so the hash is computed once."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Without the default and the parameters, which may be dicts."""
        return hash((self.type, self.optional, self.name, self.fields, self.key_schema, self.value_schema))

    def __getstate__(self) -> dict[str, Any]:
        """What was computed stays behind: hashes of strings differ between processes."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


@dataclass(frozen=True)
class Field:
    name: str
    schema: Schema


def read_field(schema: Schema, struct: Mapping[str, Any], name: str, *, with_default: bool = True) -> Any:
    """The value of a STRUCT's field, or its default if the value is null. KeyError if there is no such field."""
    value = struct.get(name)
    if value is None:
        default = schema._fields_by_name[name].schema.default
        return default if with_default else None
    return value
