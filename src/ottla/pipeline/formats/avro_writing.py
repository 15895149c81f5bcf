"""Encodes rows in Avro's binary encoding, and makes Avro schemas for Arrow types.

A `Writer` appends the bytes of a value to a buffer. Values are those of Arrow's `as_py`; the types are those that
`avro.derive_type` gives the schema, so what this module writes `avro.py` reads back.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from ottla.pipeline.formats.avro_schemas import Schema, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

Writer = Callable[[Any, bytearray], None]

_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")
_EPOCH, _LOCAL_EPOCH = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_INT_BITS, _LONG_BITS = 32, 64


class Unwritable(ValueError):
    """A value does not fit the schema. The message has one line."""


class AvroEncoder:
    """Encodes a column of the type that the schema stands for."""

    def __init__(self, schema: str) -> None:
        from ottla.pipeline.formats.avro import derive_type

        parsed = parse_schema(schema)
        self.type = derive_type(parsed)
        self._write = make_writer(parsed, "value")

    def encode(self, column: "pa.Array", prefix: bytes = b"") -> "pa.Array":
        """The bytes of each value after `prefix`; null where the column is null. ValueError if a value does not fit."""
        import pyarrow as pa

        write = self._write
        found: list[bytes | None] = []
        for value in column.to_pylist():
            if value is None:
                found.append(None)
                continue
            buffer = bytearray(prefix)
            write(value, buffer)
            found.append(bytes(buffer))
        return pa.array(found, pa.binary())


def write_long(value: int, buffer: bytearray) -> None:
    """Zigzag and variable length: small numbers of either sign take few bytes."""
    left = (value << 1) ^ (value >> (_LONG_BITS - 1))
    while left > 0x7F:
        buffer.append(left & 0x7F | 0x80)
        left >>= 7
    buffer.append(left)


def make_writer(schema: Schema, name: str) -> Writer:
    """`name` is the path of the field, for messages."""
    if isinstance(schema, list):
        return _union_writer(schema, name)
    kind = schema["type"]
    if kind == "record":
        return _record_writer(schema, name)
    if kind == "array":
        return _array_writer(make_writer(schema["items"], f"{name}.element"), name)
    if kind == "map":
        return _map_writer(make_writer(schema["values"], f"{name}.value"), name)
    if kind == "enum":
        return _enum_writer(schema, name)
    return _refuse_misfits(_simple_writer(schema), schema, name)


def _refuse_misfits(write: Writer, schema: Schema, name: str) -> Writer:
    def checked(value: Any, buffer: bytearray) -> None:
        try:
            write(value, buffer)
        except Exception:
            if value is None and schema["type"] != "null":
                raise _refuse_null(name) from None
            kind = schema.get("logicalType", schema["type"])
            raise Unwritable(f"{name}: {value!r:.60} does not fit Avro's {kind}") from None

    return checked


def _refuse_null(name: str) -> Unwritable:
    return Unwritable(f"{name} is null, which the Avro schema does not allow")


def _simple_writer(schema: Schema) -> Writer:
    kind, logical = schema["type"], schema.get("logicalType", "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal_writer(schema)
    if kind == "fixed":
        return _fixed_writer(int(schema["size"]))
    if kind == "int" and logical == "date":
        return lambda value, buffer: write_long((value - _EPOCH_DAY).days, buffer)
    if kind == "long" and "timestamp-" in logical:
        epoch = _LOCAL_EPOCH if logical.startswith("local-") else _EPOCH
        unit = _MICROSECOND * (1000 if logical.endswith("millis") else 1)
        return lambda value, buffer: write_long((value - epoch) // unit, buffer)
    return _SIMPLE[kind]


def _write_integer(bits: int) -> Writer:
    limit = 1 << (bits - 1)

    def write(value: int, buffer: bytearray) -> None:
        if not -limit <= value < limit:
            raise OverflowError
        write_long(value, buffer)

    return write


def _write_bytes(value: bytes, buffer: bytearray) -> None:
    write_long(len(value), buffer)
    buffer += value


def _write_string(value: str, buffer: bytearray) -> None:
    _write_bytes(value.encode(), buffer)


def _write_null(value: None, _: bytearray) -> None:
    if value is not None:
        raise TypeError


_SIMPLE: dict[str, Writer] = {
    "null": _write_null,
    "boolean": lambda value, buffer: buffer.append(1 if value else 0),
    "int": _write_integer(_INT_BITS),
    "long": _write_integer(_LONG_BITS),
    "float": lambda value, buffer: buffer.extend(_FLOAT.pack(value)),
    "double": lambda value, buffer: buffer.extend(_DOUBLE.pack(value)),
    "bytes": _write_bytes,
    "string": _write_string,
}


def _decimal_writer(schema: Schema) -> Writer:
    scale, size = int(schema.get("scale", 0)), schema.get("size")

    def write(value: Decimal, buffer: bytearray) -> None:
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or exponent + scale < 0:
            raise ValueError
        number = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
        if size is None:
            _write_bytes(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True), buffer)
        else:
            buffer += number.to_bytes(int(size), "big", signed=True)

    return write


def _fixed_writer(size: int) -> Writer:
    def write(value: bytes, buffer: bytearray) -> None:
        if len(value) != size:
            raise ValueError
        buffer += value

    return write


def _record_writer(schema: Schema, name: str) -> Writer:
    fields = [(field["name"], make_writer(field["type"], f"{name}.{field['name']}")) for field in schema["fields"]]

    def write(value: Mapping[str, Any] | None, buffer: bytearray) -> None:
        if value is None:
            raise _refuse_null(name)
        for field, write_field in fields:
            write_field(value[field], buffer)

    return write


def _array_writer(write_item: Writer, name: str) -> Writer:
    def write(value: list[Any] | None, buffer: bytearray) -> None:
        if value is None:
            raise _refuse_null(name)
        if value:
            write_long(len(value), buffer)
            for item in value:
                write_item(item, buffer)
        buffer.append(0)

    return write


def _map_writer(write_item: Writer, name: str) -> Writer:
    def write_pair(pair: tuple[str, Any], buffer: bytearray) -> None:
        _write_string(pair[0], buffer)
        write_item(pair[1], buffer)

    return _array_writer(write_pair, name)


def _enum_writer(schema: Schema, name: str) -> Writer:
    places = {symbol: place for place, symbol in enumerate(schema["symbols"])}

    def write(value: str, buffer: bytearray) -> None:
        if value not in places:
            raise Unwritable(f"{name}: {value!r:.60} is none of the symbols {', '.join(places)}")
        write_long(places[value], buffer)

    return write


def _union_writer(schema: list[Schema], name: str) -> Writer:
    """A union of null and one other type is a column of that type; another one a struct with a field for each type, of
    which at most one is not null."""
    null = next((at for at, each in enumerate(schema) if each["type"] == "null"), None)
    branches = [(at, make_writer(each, name)) for at, each in enumerate(schema) if each["type"] != "null"]

    def write(value: Any, buffer: bytearray) -> None:
        found = value
        branch = 0
        if len(branches) > 1 and value is not None:
            branch, found = next(((at, each) for at, each in enumerate(value.values()) if each is not None), (0, None))
        if found is None:
            if null is None:
                raise _refuse_null(name)
            write_long(null, buffer)
            return
        place, write_branch = branches[branch]
        write_long(place, buffer)
        write_branch(found, buffer)

    return write


# Schemas


@cache
def _list_names() -> dict[Any, Any]:
    """The Avro types of simple Arrow types."""
    import pyarrow as pa

    return {
        pa.bool_(): "boolean",
        pa.int8(): "int",
        pa.int16(): "int",
        pa.int32(): "int",
        pa.int64(): "long",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "bytes",
        pa.date32(): {"type": "int", "logicalType": "date"},
        pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
    }


def make_schema(kind: "pa.DataType", name: str) -> str:
    """An Avro schema for a type, as JSON. Every field may be null. ValueError with one line if Avro has none."""
    return json.dumps(_schema_of(kind, name))


def _schema_of(kind: "pa.DataType", name: str) -> Any:
    import pyarrow as pa

    if kind in _list_names():
        return _list_names()[kind]
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_struct(kind):
        fields = [
            {"name": _check_name(each.name), "type": _nullable(each.type, f"{name}_{each.name}"), "default": None}
            for each in kind
        ]
        return {"type": "record", "name": _check_name(name), "fields": fields}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, f"{name}_element")}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _nullable(kind.item_type, f"{name}_value")}
    raise ValueError(f"Avro has no type for {kind}, the type of {name}")


def _nullable(kind: "pa.DataType", name: str) -> list[Any]:
    return ["null", _schema_of(kind, name)]


def _check_name(name: str) -> str:
    if not name.isascii() or not name.isidentifier():
        raise ValueError(f"Avro does not allow the name {name!r}: letters, digits and underscores only")
    return name
