"""Random schemas and values of Kafka Connect, the same for the same seed."""

from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any, Final

import numpy as np

from ottla.connect.data.logical import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    find_scale,
    make_decimal_schema,
    unscaled_to_decimal,
)
from ottla.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type

NAMES: Final = ("a", "b", "c", "d.e", "ž")
PRIMITIVES: Final = tuple(each for each in Type if each not in (Type.ARRAY, Type.MAP, Type.STRUCT))
BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
TEXTS: Final = ("", "x", "žaba", 'quote" and \\ and \n', "42", "-7", "true", "1.5", "NaN", "2020-02-29", "[1,2]", "9e9")


class RandomData:
    def __init__(self, random: Random) -> None:
        self._random = random

    def schema(self, depth: int = 2) -> Schema:
        random = self._random
        kinds = ["primitive"] * 5 + ["logical"] * 2 + (["array", "map", "struct"] if depth else [])
        schema = getattr(self, f"_make_{random.choice(kinds)}")(depth)
        changes: dict[str, Any] = {"optional": random.random() < 0.5}
        if random.random() < 0.2:
            changes["doc"] = "a doc"
        if random.random() < 0.2 and schema.name is None:
            changes |= {"name": "some.name", "version": random.choice((None, 3)), "parameters": {"p": "q"}}
        if random.random() < 0.3 and schema.type in PRIMITIVES:
            changes["default"] = self.value(schema)
        return _replace(schema, changes)

    def struct(self, depth: int = 2) -> Schema:
        return self._make_struct(depth)

    def _make_primitive(self, _: int) -> Schema:
        return Schema(self._random.choice(PRIMITIVES))

    def _make_logical(self, _: int) -> Schema:
        decimal = make_decimal_schema(self._random.randrange(5))
        return self._random.choice((decimal, DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA))

    def _make_array(self, depth: int) -> Schema:
        return Schema(Type.ARRAY, value_schema=self.schema(depth - 1))

    def _make_map(self, depth: int) -> Schema:
        key = Schema(self._random.choice((Type.STRING, Type.STRING, Type.INT32)))
        return Schema(Type.MAP, key_schema=key, value_schema=self.schema(depth - 1))

    def _make_struct(self, depth: int) -> Schema:
        names = self._random.sample(NAMES, self._random.randrange(1, 5))
        return Schema(Type.STRUCT, name="a.struct", fields=tuple(Field(each, self.schema(depth - 1)) for each in names))

    def value(self, schema: Schema) -> Any:
        """Null only where the schema has it. No number that a float of 32 bits cannot hold where it has to."""
        random = self._random
        if schema.optional and random.random() < 0.3:
            return None
        if schema.name == DECIMAL:
            return unscaled_to_decimal(random.randrange(-(10**8), 10**8), find_scale(schema))
        if schema.name == DATE:
            return date(1970, 1, 1) + timedelta(days=random.randrange(-1000, 30_000))
        if schema.name == TIME:
            return (datetime(1970, 1, 1) + timedelta(milliseconds=random.randrange(86_400_000))).time()
        if schema.name == TIMESTAMP:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=random.randrange(-(10**11), 10**13))
        if schema.type in BITS:
            half = 1 << (BITS[schema.type] - 1)
            return random.choice((0, 1, -1, half - 1, -half, random.randrange(-half, half)))
        return self._other_value(schema)

    def _other_value(self, schema: Schema) -> Any:
        random = self._random
        match schema.type:
            case Type.FLOAT32:
                return float(np.float32(random.choice((0.0, 1.0, -2.5, random.uniform(-1e6, 1e6)))))
            case Type.FLOAT64:
                return random.choice((0.0, 1.0, -2.5, 1e20, 1e-5, random.uniform(-1e6, 1e6)))
            case Type.BOOLEAN:
                return random.random() < 0.5
            case Type.STRING:
                return random.choice(TEXTS)
            case Type.BYTES:
                return random.randbytes(random.randrange(5))
            case Type.ARRAY:
                assert schema.value_schema
                return [self.value(schema.value_schema) for _ in range(random.randrange(3))]
            case Type.MAP:
                assert schema.key_schema and schema.value_schema
                keys = [self.value(schema.key_schema) for _ in range(random.randrange(3))]
                return {key: self.value(schema.value_schema) for key in keys}
            case _:
                return {each.name: self.value(each.schema) for each in schema.fields}

    def loose_value(self, depth: int = 2) -> Any:
        """A value without a schema."""
        random = self._random
        kinds = ("null", "boolean", "integer", "float", "text", *(("list", "map") if depth else ()))
        match random.choice(kinds):
            case "null":
                return None
            case "boolean":
                return random.random() < 0.5
            case "integer":
                return random.choice((0, 1, -1, 300, 2**40, -(2**63), random.randrange(-(10**12), 10**12)))
            case "float":
                return random.choice((0.5, 1.0, -2.75, 1e20, random.uniform(-1e6, 1e6)))
            case "text":
                return random.choice(TEXTS)
            case "list":
                return [self.loose_value(depth - 1) for _ in range(random.randrange(3))]
            case _:
                return self.loose_map(depth)

    def loose_map(self, depth: int = 2) -> dict[str, Any]:
        names = self._random.sample(NAMES, self._random.randrange(4))
        return {name: self.loose_value(depth - 1) for name in names}


def _replace(schema: Schema, changes: dict[str, Any]) -> Schema:
    found = {name: getattr(schema, name) for name in Schema.__dataclass_fields__}
    return Schema(**{**found, **changes})
