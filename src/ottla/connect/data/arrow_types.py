"""Which Arrow type holds the values of a schema, and which schema an Arrow type has.

Arrow has types that Kafka Connect lacks. They become the nearest type that loses nothing; only times finer than a
millisecond are cut.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from ottla.connect.data.logical import DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA, find_scale, make_decimal_schema
from ottla.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type
from ottla.connect.errors import ConnectError

PRECISION: Final = "connect.decimal.precision"
"""A parameter of a decimal's schema, by Confluent's name: how many digits a value has at most."""

_DIGITS_128: Final = 38
_DIGITS_256: Final = 76

_ARROW_TYPES: Final[dict[Type, pa.DataType]] = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}

_SCHEMAS: Final[dict[pa.DataType, Schema]] = {
    **{arrow: Schema(kind) for kind, arrow in _ARROW_TYPES.items()},
    pa.uint8(): Schema(Type.INT16),
    pa.uint16(): Schema(Type.INT32),
    pa.uint32(): Schema(Type.INT64),
    pa.uint64(): make_decimal_schema(0),
    pa.float16(): Schema(Type.FLOAT32),
    pa.large_string(): Schema(Type.STRING),
    pa.string_view(): Schema(Type.STRING),
    pa.null(): Schema(Type.STRING),
    pa.large_binary(): Schema(Type.BYTES),
    pa.binary_view(): Schema(Type.BYTES),
}


def find_arrow_type(schema: Schema) -> pa.DataType:
    """The type of the Arrow columns that hold values of the schema."""
    if schema.name == DECIMAL:
        scale = find_scale(schema)
        precision = max(int(schema.parameters.get(PRECISION, _DIGITS_128)), scale)
        return pa.decimal128(precision, scale) if precision <= _DIGITS_128 else pa.decimal256(_DIGITS_256, scale)
    if schema.name == DATE:
        return pa.date32()
    if schema.name == TIME:
        return pa.time32("ms")
    if schema.name == TIMESTAMP:
        return pa.timestamp("ms", "UTC")
    if schema.type is Type.STRUCT:
        return pa.struct([pa.field(each.name, find_arrow_type(each.schema)) for each in schema.fields])
    if schema.type is Type.ARRAY and schema.value_schema:
        return pa.list_(find_arrow_type(schema.value_schema))
    if schema.type is Type.MAP and schema.key_schema and schema.value_schema:
        return pa.map_(find_arrow_type(schema.key_schema), find_arrow_type(schema.value_schema))
    return _ARROW_TYPES[schema.type]


def find_schema(kind: pa.DataType, *, optional: bool = True) -> Schema:
    """The schema of an Arrow type. ConnectError if Kafka Connect has none for it."""
    found = _find_schema(kind)
    return _make_optional(found) if optional else found


def normalise(column: pa.Array, *, optional: bool = True) -> tuple[Schema, pa.Array]:
    """The schema of a column, and the column in the one Arrow type that the schema has here."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    schema = find_schema(column.type, optional=optional)
    wanted = find_arrow_type(schema)
    return schema, column if column.type == wanted else column.cast(wanted, safe=False)


def _make_optional(schema: Schema) -> Schema:
    return Schema(
        schema.type,
        True,
        schema.name,
        schema.version,
        parameters=schema.parameters,
        fields=schema.fields,
        key_schema=schema.key_schema,
        value_schema=schema.value_schema,
    )


def _find_schema(kind: pa.DataType) -> Schema:
    found = _SCHEMAS.get(kind)
    if found is not None:
        return found
    for applies, make in _NESTED:
        if applies(kind):
            return make(kind)
    raise ConnectError(f"Kafka Connect has no type for Arrow's {kind}")


def _find_schema_of_field(field: pa.Field) -> Schema:
    return find_schema(field.type, optional=field.nullable)


def _find_struct_schema(kind: pa.DataType) -> Schema:
    return Schema(Type.STRUCT, fields=tuple(Field(each.name, _find_schema_of_field(each)) for each in kind))


def _find_map_schema(kind: pa.DataType) -> Schema:
    return Schema(
        Type.MAP,
        key_schema=find_schema(kind.key_type, optional=False),
        value_schema=_find_schema_of_field(kind.item_field),
    )


def _find_decimal_schema(kind: pa.DataType) -> Schema:
    schema = make_decimal_schema(kind.scale)
    return Schema(
        schema.type, name=schema.name, version=1, parameters={**schema.parameters, PRECISION: str(kind.precision)}
    )


_NESTED: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Schema]], ...]] = (
    (pa.types.is_struct, _find_struct_schema),
    (pa.types.is_map, _find_map_schema),
    (
        lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind),
        lambda kind: Schema(Type.ARRAY, value_schema=_find_schema_of_field(kind.value_field)),
    ),
    (pa.types.is_decimal, _find_decimal_schema),
    (pa.types.is_date, lambda _: DATE_SCHEMA),
    (pa.types.is_time, lambda _: TIME_SCHEMA),
    (pa.types.is_timestamp, lambda _: TIMESTAMP_SCHEMA),
    (pa.types.is_dictionary, lambda kind: _find_schema(kind.value_type)),
    (pa.types.is_fixed_size_binary, lambda _: Schema(Type.BYTES)),
)
