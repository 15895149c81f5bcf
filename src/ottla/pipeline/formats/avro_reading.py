"""Makes functions that read Avro values, for a writer's and a reader's schema, by Avro's rules of schema resolution.

A `Reader` is called with bytes and a position and returns the value there and the position after it. It raises
IndexError if the bytes end too early, and `Unreadable` if they do not fit the schema.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from struct import Struct
from typing import Any

Schema = Any
Reader = Callable[[bytes, int], tuple[Any, int]]

_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")
_VARINT_SHIFT_MAX = 63
_EMPTY_ITEMS_MAX = 1_000_000
"""Limits arrays of items that take no bytes, such as nulls: a few bytes could announce any number of them."""

_PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


class Unreadable(Exception):
    """The bytes are not a value of the schema."""


class SchemaMismatch(Exception):
    """Values of the writer's schema cannot be read with the reader's."""


def make_reader(writer: Schema, wanted: Schema) -> Reader:
    """A function that reads values written with the schema `writer` and returns them as values of `wanted`."""
    if isinstance(writer, list):
        return _union_reader(writer, wanted)
    if isinstance(wanted, list):
        return _reader_into_union(writer, wanted)
    kind, target = writer["type"], wanted["type"]
    if kind == target:
        if kind == "record":
            return _record_reader(writer, wanted)
        if kind == "array":
            return _array_reader(make_reader(writer["items"], wanted["items"]))
        if kind == "map":
            return _map_reader(make_reader(writer["values"], wanted["values"]))
        if kind == "enum":
            return _enum_reader(writer, wanted)
        if kind == "fixed" and writer["size"] != wanted["size"]:
            raise SchemaMismatch(f"fixed {writer['name']} of {writer['size']} bytes, not {wanted['size']}")
    elif (kind, target) not in _PROMOTIONS:
        raise SchemaMismatch(f"{kind} is not {target}")
    return _apply_logical_type(_simple_reader(writer, target), writer, wanted)


def _simple_reader(writer: Schema, target: str) -> Reader:
    kind = writer["type"]
    if kind == "fixed":
        size = int(writer["size"])
        return lambda data, position: (_take_bytes(data, position, size), position + size)
    found = _SIMPLE[kind]
    if (kind, target) in (("string", "bytes"), ("bytes", "string")):
        return _SIMPLE[target]
    if target in ("float", "double") and kind in ("int", "long"):
        return _convert_after(found, float)
    return found


def _convert_after(read: Reader, convert: Callable[[Any], Any]) -> Reader:
    def converted(data: bytes, position: int) -> tuple[Any, int]:
        value, position = read(data, position)
        return convert(value), position

    return converted


def _apply_logical_type(read: Reader, writer: Schema, wanted: Schema) -> Reader:
    """Converts decimals, and times to the microseconds that Arrow stores. The writer's schema has the unit of a time,
    the reader's the type."""
    logical = wanted.get("logicalType")
    if logical == "decimal" and wanted["type"] in ("bytes", "fixed"):
        scale = int(wanted.get("scale", 0))
        return _convert_after(read, lambda raw: _parse_decimal(raw, scale))
    if wanted["type"] == "long" and logical and "timestamp-" in logical:
        unit = writer.get("logicalType", logical)
        if unit.endswith("millis"):
            return _convert_after(read, lambda milliseconds: milliseconds * 1000)
    return read


def _parse_decimal(raw: bytes, scale: int) -> Decimal:
    return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}e{-scale}")  # from text: arithmetic rounds


# Simple types


def read_long(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift > _VARINT_SHIFT_MAX:
            raise Unreadable("a number of more than 64 bits")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), position


def _take_bytes(data: bytes, position: int, size: int) -> bytes:
    if size < 0:
        raise Unreadable(f"a length of {size}")
    end = position + size
    if end > len(data):
        raise Unreadable(f"{size} bytes where {len(data) - position} are left")
    return data[position:end]


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = read_long(data, position)
    return _take_bytes(data, position, size), position + size


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    size, position = read_long(data, position)
    return _take_bytes(data, position, size).decode(), position + size


def _read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    return data[position] != 0, position + 1


def _read_float(data: bytes, position: int) -> tuple[float, int]:
    return _FLOAT.unpack(_take_bytes(data, position, 4))[0], position + 4


def _read_double(data: bytes, position: int) -> tuple[float, int]:
    return _DOUBLE.unpack(_take_bytes(data, position, 8))[0], position + 8


_SIMPLE: dict[str, Reader] = {
    "null": lambda _, position: (None, position),
    "boolean": _read_boolean,
    "int": read_long,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}


# Complex types


def _record_reader(writer: Schema, wanted: Schema) -> Reader:
    """Fields are in the writer's order. Fields that the reader's schema does not have are read and dropped."""
    by_name = {field["name"]: field for field in wanted["fields"]}
    for field in wanted["fields"]:
        for alias in field.get("aliases", ()):
            by_name.setdefault(alias, field)
    steps: list[tuple[str | None, Reader]] = []
    for field in writer["fields"]:
        target = by_name.get(field["name"])
        if target is None:
            steps.append((None, make_reader(field["type"], field["type"])))
        else:
            steps.append((target["name"], make_reader(field["type"], target["type"])))
    written = {name for name, _ in steps}
    defaults = {}
    for field in wanted["fields"]:
        if field["name"] not in written:
            if "default" not in field:
                raise SchemaMismatch(f"field {field['name']!r} is not written, and has no default")
            defaults[field["name"]] = _convert_default(field["type"], field["default"])

    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        found = dict(defaults)
        for name, step in steps:
            value, position = step(data, position)
            if name is not None:
                found[name] = value
        return found, position

    return read


def _convert_default(schema: Schema, value: Any) -> Any:
    """Converts a field's default from its JSON form to the value that a column takes."""
    if isinstance(schema, list):
        if len([each for each in schema if each["type"] != "null"]) > 1 and value is not None:
            return {"member0": _convert_default(schema[0], value)}
        if value is None:
            return None
        return _convert_default(next(each for each in schema if each["type"] != "null"), value)
    if schema["type"] in ("bytes", "fixed"):
        raw = str(value).encode("latin-1")
        if schema.get("logicalType") == "decimal":
            return _parse_decimal(raw, int(schema.get("scale", 0)))
        return raw
    if schema["type"] == "record":
        return {field["name"]: _convert_default(field["type"], value[field["name"]]) for field in schema["fields"]}
    if schema["type"] == "array":
        return [_convert_default(schema["items"], each) for each in value]
    if schema["type"] == "map":
        return [(key, _convert_default(schema["values"], each)) for key, each in value.items()]
    if schema["type"] == "long" and str(schema.get("logicalType", "")).endswith("timestamp-millis"):
        return value * 1000
    return value


def _read_blocks(data: bytes, position: int, item: Reader) -> tuple[list[Any], int]:
    """Reads the items of an array or a map. They are in blocks of a count and items; after a negative count comes the
    size of the block in bytes."""
    found: list[Any] = []
    while True:
        count, position = read_long(data, position)
        if not count:
            return found, position
        if count < 0:
            count = -count
            _, position = read_long(data, position)
        if count > len(data) - position and len(found) + count > _EMPTY_ITEMS_MAX:
            raise Unreadable(f"{count} items in {len(data) - position} bytes")
        for _ in range(count):
            value, position = item(data, position)
            found.append(value)


def _array_reader(item: Reader) -> Reader:
    return lambda data, position: _read_blocks(data, position, item)


def _map_reader(item: Reader) -> Reader:
    def pair(data: bytes, position: int) -> tuple[tuple[str, Any], int]:
        key, position = _read_string(data, position)
        value, position = item(data, position)
        return (key, value), position

    return lambda data, position: _read_blocks(data, position, pair)


def _enum_reader(writer: Schema, wanted: Schema) -> Reader:
    known = set(wanted["symbols"])
    symbols = [symbol if symbol in known else wanted.get("default") for symbol in writer["symbols"]]

    def read(data: bytes, position: int) -> tuple[str, int]:
        index, position = read_long(data, position)
        if not 0 <= index < len(symbols):
            raise Unreadable(f"symbol {index} of {len(symbols)}")
        symbol = symbols[index]
        if symbol is None:
            raise Unreadable(f"the symbol {writer['symbols'][index]!r}, which the reader does not know")
        return symbol, position

    return read


def _union_reader(writer: list[Schema], wanted: Schema) -> Reader:
    """Reads a value of a writer's union, which begins with the index of its type. A type that the reader's schema does
    not accept is an error only for the values that have it."""
    branches: list[Reader] = []
    for each in writer:
        try:
            branches.append(make_reader(each, wanted))
        except SchemaMismatch as error:
            branches.append(_failing_reader(str(error)))

    def read(data: bytes, position: int) -> tuple[Any, int]:
        index, position = read_long(data, position)
        if not 0 <= index < len(branches):
            raise Unreadable(f"type {index} of a union of {len(branches)}")
        return branches[index](data, position)

    return read


def _failing_reader(reason: str) -> Reader:
    def refuse(_: bytes, __: int) -> tuple[Any, int]:
        raise Unreadable(reason)

    return refuse


def _member(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def _reader_into_union(writer: Schema, wanted: list[Schema]) -> Reader:
    """Reads into the reader's union: into the writer's own type if the union has it, else into the first type that
    accepts it."""
    present = [each for each in wanted if each["type"] != "null"]
    if writer["type"] == "null" and len(present) < len(wanted):
        return _SIMPLE["null"]
    same = [each for each in present if each["type"] == writer["type"] and each.get("name") == writer.get("name")]
    for each in same + present:
        try:
            found = make_reader(writer, each)
        except SchemaMismatch:
            continue
        if len(present) == 1:
            return found
        member = f"member{present.index(each)}"
        return _convert_after(found, partial(_member, member))
    raise SchemaMismatch(f"{writer['type']} is none of the reader's union")
