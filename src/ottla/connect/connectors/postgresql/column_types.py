"""Which schema a column of PostgreSQL has, by Debezium's names, and how its texts become values.

Texts are those of the type's output function in a session that `SESSION` has set up. Whole columns are converted at
once by Arrow where it can; dates outside the years 1 to 9999 and infinities are converted one by one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connectors.postgresql import texts
from ottla.connect.data.arrow_types import PRECISION, find_arrow_type
from ottla.connect.data.logical import DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA, make_decimal_schema
from ottla.connect.data.schema import Field, Schema, Type

SESSION: Final = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'iso_8601'; SET bytea_output = 'hex'; "
    "SET extra_float_digits = 1; SET client_encoding = 'UTF8'; SET statement_timeout = 0"
)

_DIGITS_MAX: Final = 76
"""Of an Arrow decimal."""
_HEADER: Final = 4
"""What the type modifier of a text or number counts besides."""

VARIABLE_DECIMAL: Final = Schema(
    Type.STRUCT,
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
    fields=(Field("scale", Schema(Type.INT32)), Field("value", Schema(Type.BYTES))),
)


@dataclass(frozen=True)
class TypeInfo:
    """A row of pg_type."""

    oid: int
    name: str
    element: int = 0
    """The oid of an array's elements."""
    base: int = 0
    """The oid of the type that a domain restricts."""
    modifier: int = -1
    """Of a domain's base type."""
    labels: tuple[str, ...] = ()
    """Of an enum."""


@dataclass(frozen=True)
class TypeModes:
    decimal: str = "precise"
    """decimal.handling.mode"""
    time: str = "adaptive"
    """time.precision.mode"""


@dataclass(frozen=True)
class ColumnType:
    schema: Schema
    """Required. The columns that may be null make it optional."""
    convert: Callable[[pa.Array], pa.Array]
    """From texts to values."""
    zero: Any = None
    """What Debezium gives for a required column that was not logged."""
    placeholder: bytes | None = None
    """The text that stands for a large value that was not logged."""


def _keep(column: pa.Array) -> pa.Array:
    return column


def _cast(kind: pa.DataType, column: pa.Array) -> pa.Array:
    return column.cast(kind)


def _one_by_one(kind: pa.DataType, parse: Callable[[str], Any], column: pa.Array) -> pa.Array:
    return pa.array([None if each is None else parse(each) for each in column.to_pylist()], kind)


def _cast_or_parse(kinds: tuple[pa.DataType, ...], parse: Callable[[str], Any], column: pa.Array) -> pa.Array:
    """Casts from type to type; if Arrow refuses a text, each is parsed."""
    converted = column
    try:
        for kind in kinds:
            converted = converted.cast(kind)
        return converted
    except pa.ArrowInvalid:
        return _one_by_one(kinds[-1], parse, column)


def _divide(column: pa.Array) -> pa.Array:
    """Microseconds to milliseconds, rounded down to zero as Java does."""
    return pc.divide(column, 1000)


def _simple(kind: Type) -> ColumnType:
    schema = Schema(kind)
    zero: Any = 0.0 if kind in (Type.FLOAT32, Type.FLOAT64) else 0
    return ColumnType(schema, partial(_cast, find_arrow_type(schema)), zero)


def _text(name: str | None = None, **more: Any) -> ColumnType:
    return ColumnType(Schema(Type.STRING, name=name, version=1 if name else None, **more), _keep, "", texts.UNAVAILABLE)


def _integers(kind: Type, name: str, convert: Callable[[pa.Array], pa.Array]) -> ColumnType:
    return ColumnType(Schema(kind, name=f"io.debezium.time.{name}", version=1), convert, 0)


_TO_DAYS: Final = partial(_cast_or_parse, (pa.date32(), pa.int32()), texts.parse_days)
_TO_TIMESTAMP_US: Final = partial(_cast_or_parse, (pa.timestamp("us"), pa.int64()), texts.parse_timestamp_us)


def _to_time_us(column: pa.Array) -> pa.Array:
    try:
        return pc.binary_join_element_wise("1970-01-01", column, " ").cast(pa.timestamp("us")).cast(pa.int64())
    except pa.ArrowInvalid:
        return _one_by_one(pa.int64(), texts.parse_time_us, column)


def _to_time_ms(column: pa.Array) -> pa.Array:
    return _divide(_to_time_us(column)).cast(pa.int32())


def _to_timestamp_ms(column: pa.Array) -> pa.Array:
    return _divide(_TO_TIMESTAMP_US(column))


def _to_zoned(column: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(column, r"^(\S+) (\S+)\+00( BC)?$", r"\1T\2Z\3")


_SIMPLE: Final[Mapping[str, ColumnType]] = {
    "int2": _simple(Type.INT16),
    "int4": _simple(Type.INT32),
    "int8": _simple(Type.INT64),
    "oid": _simple(Type.INT64),
    "float4": _simple(Type.FLOAT32),
    "float8": _simple(Type.FLOAT64),
    "bool": ColumnType(Schema(Type.BOOLEAN), lambda column: pc.starts_with(column, "t"), False),
    "json": _text("io.debezium.data.Json"),
    "jsonb": _text("io.debezium.data.Json"),
    "xml": _text("io.debezium.data.Xml"),
    "uuid": _text("io.debezium.data.Uuid"),
    "ltree": _text("io.debezium.data.Ltree"),
    "bytea": ColumnType(
        Schema(Type.BYTES),
        partial(_one_by_one, pa.binary(), texts.parse_bytea),
        b"",
        b"\\x" + texts.UNAVAILABLE.hex().encode(),
    ),
    "timestamptz": replace(_text("io.debezium.time.ZonedTimestamp"), convert=_to_zoned),
    "timetz": replace(
        _text("io.debezium.time.ZonedTime"), convert=partial(_one_by_one, pa.string(), texts.parse_timetz)
    ),
    "interval": _integers(Type.INT64, "MicroDuration", partial(_one_by_one, pa.int64(), texts.parse_interval_us)),
}


def find_column_type(types: Mapping[int, TypeInfo], oid: int, modifier: int, modes: TypeModes) -> ColumnType:
    """How to read the columns of a type. A type that is not known here is its text."""
    found = types.get(oid)
    if found is None:
        return _text()
    if found.base:
        return find_column_type(types, found.base, found.modifier if modifier < 0 else modifier, modes)
    if found.labels:
        return _text("io.debezium.data.Enum", parameters={"allowed": ",".join(found.labels)})
    if found.element:
        return _make_array_type(find_column_type(types, found.element, modifier, modes))
    if found.name == "numeric":
        return _make_decimal_type(modifier, modes.decimal)
    if found.name in ("bit", "varbit"):
        return _make_bits_type(found.name, modifier)
    if found.name in ("date", "time", "timestamp"):
        return _make_time_type(found.name, modifier, modes.time)
    return _SIMPLE.get(found.name) or _text()


def _make_array_type(element: ColumnType) -> ColumnType:
    schema = Schema(Type.ARRAY, value_schema=replace(element.schema, optional=True))
    return ColumnType(schema, partial(_to_lists, element))


def _to_lists(element: ColumnType, column: pa.Array) -> pa.Array:
    rows = [None if each is None else texts.parse_array(each) for each in column.to_pylist()]
    offsets: list[int | None] = []
    flat: list[str | None] = []
    for row in rows:
        offsets.append(None if row is None else len(flat))
        flat += row or ()
    converted = element.convert(pa.array(flat, pa.string()))
    return pa.ListArray.from_arrays(pa.array([*offsets, len(flat)], pa.int32()), converted)


def _make_decimal_type(modifier: int, mode: str) -> ColumnType:
    if mode == "string":
        return _text()
    if mode == "double":
        return _simple(Type.FLOAT64)
    precision, scale = (modifier - _HEADER) >> 16, (modifier - _HEADER) & 0xFFFF
    if modifier < 0 or precision > _DIGITS_MAX or scale > precision:
        parse = partial(_one_by_one, find_arrow_type(VARIABLE_DECIMAL), texts.parse_variable_decimal)
        return ColumnType(VARIABLE_DECIMAL, parse)
    schema = make_decimal_schema(scale)
    schema = replace(schema, parameters={**schema.parameters, PRECISION: str(precision)})
    return ColumnType(schema, partial(_to_decimals, find_arrow_type(schema)), 0)


def _to_decimals(kind: pa.DataType, column: pa.Array) -> pa.Array:
    """NaN, which a decimal cannot be, is null."""
    is_number = pc.match_substring_regex(column, r"^-?[0-9.]+$")
    if pc.all(is_number).as_py() is False:
        column = pc.if_else(is_number, column, pa.scalar(None, pa.string()))
    return column.cast(kind)


def _make_bits_type(name: str, modifier: int) -> ColumnType:
    if name == "bit" and modifier == 1:
        return ColumnType(Schema(Type.BOOLEAN), lambda column: pc.equal(column, "1"), False)
    parameters = {"length": str(modifier if modifier >= 0 else 2**31 - 1)}
    schema = Schema(Type.BYTES, name="io.debezium.data.Bits", version=1, parameters=parameters)
    return ColumnType(schema, partial(_one_by_one, pa.binary(), texts.parse_bits), b"")


def _make_time_type(name: str, modifier: int, mode: str) -> ColumnType:
    is_coarse = 0 <= modifier <= 3
    if mode == "connect":
        if name == "date":
            return ColumnType(DATE_SCHEMA, lambda column: _TO_DAYS(column).cast(pa.date32()), 0)
        if name == "time":
            return ColumnType(TIME_SCHEMA, lambda column: _to_time_ms(column).cast(pa.time32("ms")), 0)
        kind = pa.timestamp("ms", "UTC")
        return ColumnType(TIMESTAMP_SCHEMA, lambda column: _to_timestamp_ms(column).cast(kind), 0)
    if name == "date":
        return _integers(Type.INT32, "Date", _TO_DAYS)
    if name == "time":
        if is_coarse and mode == "adaptive":
            return _integers(Type.INT32, "Time", _to_time_ms)
        return _integers(Type.INT64, "MicroTime", _to_time_us)
    if is_coarse:
        return _integers(Type.INT64, "Timestamp", _to_timestamp_ms)
    return _integers(Type.INT64, "MicroTimestamp", _TO_TIMESTAMP_US)
