"""Avro values as JSON documents and back.

The form is Avro's JSON encoding, with three exceptions that people prefer: a value of a union of null and one other
type stands for itself, without the name of its type; a decimal is its digits as text; and dates and timestamps are ISO
8601. Bytes are text whose characters are the bytes. When a document is written, Avro's own forms are accepted too.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from ottla.pipeline.formats.avro_reading import make_reader
from ottla.pipeline.formats.avro_schemas import Schema, parse_schema
from ottla.pipeline.formats.avro_writing import Unwritable, make_writer

Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_TIMESTAMPS = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")
_NAMED = ("record", "enum", "fixed")
_INT_BITS, _LONG_BITS = 32, 64
_SHOWN_MAX = 60


def make_document_reader(text: str) -> Callable[[bytes, int], Any]:
    """The function that reads a value, written with this schema, from a position on. ValueError for a bad schema."""
    schema = parse_schema(text)
    read, convert = make_reader(schema, schema), _make_showing(schema)
    return lambda data, position: convert(read(data, position)[0])


def make_document_writer(text: str) -> Callable[[bytes], bytes]:
    """The function that writes the JSON text of a document as an Avro value. ValueError if it does not fit."""
    schema = parse_schema(text)
    convert, write = _make_reading(schema, "value"), make_writer(schema, "value")

    def encode(document: bytes) -> bytes:
        buffer = bytearray()
        write(convert(json.loads(document, parse_float=Decimal)), buffer)
        return bytes(buffer)

    return encode


# Avro values, as `avro_reading.py` returns them, to documents


def _make_showing(schema: Schema) -> Convert:
    if isinstance(schema, list):
        return _show_union(schema)
    kind, logical = schema["type"], schema.get("logicalType", "")
    if kind == "record":
        fields = [(field["name"], _make_showing(field["type"])) for field in schema["fields"]]
        return lambda value: {name: show(value[name]) for name, show in fields}
    if kind == "array":
        show_item = _make_showing(schema["items"])
        return lambda value: [show_item(item) for item in value]
    if kind == "map":
        show_value = _make_showing(schema["values"])
        return lambda value: {name: show_value(each) for name, each in value}
    if kind in ("bytes", "fixed"):
        return (lambda value: format(value, "f")) if logical == "decimal" else (lambda value: value.decode("latin-1"))
    if kind == "int" and logical == "date":
        return lambda days: _show_time(days, lambda: (_EPOCH_DAY + timedelta(days=days)).isoformat())
    if kind == "long" and logical in _TIMESTAMPS:
        suffix = "" if logical.startswith("local-") else "Z"
        return lambda value: _show_time(value, lambda: _format_timestamp(value) + suffix)
    return lambda value: value


def _show_union(schema: list[Schema]) -> Convert:
    present = [each for each in schema if each["type"] != "null"]
    shows = [_make_showing(each) for each in present]
    if len(present) == 1:
        return lambda value: None if value is None else shows[0](value)
    members = {f"member{at}": (_name_type(each), shows[at]) for at, each in enumerate(present)}

    def show(value: Mapping[str, Any] | None) -> Any:
        if value is None:
            return None
        ((member, found),) = value.items()
        name, show_found = members[member]
        return {name: show_found(found)}

    return show


def _show_time(number: int, write: Callable[[], str]) -> Any:
    """The number itself if it is beyond the years that ISO 8601 has."""
    try:
        return write()
    except OverflowError:
        return number


def _format_timestamp(microseconds: int) -> str:
    moment = (_EPOCH + timedelta(microseconds=microseconds)).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if microseconds % 1000 == 0 else "microseconds")


def _name_type(schema: Schema) -> str:
    """The name of a type in a union's document: its full name, or its kind if it has none."""
    return str(schema["name"] if schema["type"] in _NAMED else schema["type"])


# Documents to the values that `avro_writing.py` takes


def _make_reading(schema: Schema, name: str) -> Convert:
    """`name` is the path of the field, for messages."""
    if isinstance(schema, list):
        return _read_union(schema, name)
    kind, logical = schema["type"], schema.get("logicalType", "")
    if kind == "record":
        return _read_record(schema, name)
    if kind == "array":
        read_item = _make_reading(schema["items"], f"{name}.element")
        return lambda value: [read_item(item) for item in _expect(value, list, "an array", name)]
    if kind == "map":
        read_value = _make_reading(schema["values"], f"{name}.value")
        return lambda value: [
            (key, read_value(each)) for key, each in _expect(value, dict, "an object, for a map", name).items()
        ]
    if kind in ("bytes", "fixed"):
        return _make_decimal_reading(name) if logical == "decimal" else _make_bytes_reading(schema, name)
    if kind == "enum":
        return _make_enum_reading(schema, name)
    if kind == "int" and logical == "date":
        return lambda value: _read_time(value, date.fromisoformat, lambda days: _EPOCH_DAY + timedelta(days=days), name)
    if kind == "long" and logical in _TIMESTAMPS:
        return _make_timestamp_reading(logical, name)
    return lambda value: _read_simple(value, kind, name)


def _expect(value: Any, kind: type, what: str, name: str) -> Any:
    if not isinstance(value, kind):
        raise Unwritable(f"{name}: {value!r:.{_SHOWN_MAX}} is not {what}")
    return value


def _read_record(schema: Schema, name: str) -> Convert:
    steps = []
    for field in schema["fields"]:
        read_field = _make_reading(field["type"], f"{name}.{field['name']}")
        steps.append((field["name"], read_field, field))
    known = {field for field, _, _ in steps}

    def read(value: Any) -> dict[str, Any]:
        given = _expect(value, dict, f"an object, for the record {schema['name']}", name)
        for field in given:
            if field not in known:
                raise Unwritable(f"{name}: the schema has no field {field!r}; it has {', '.join(sorted(known))}")
        found = {}
        for field, read_field, definition in steps:
            if field not in given and "default" not in definition:
                raise Unwritable(f"{name}.{field} is missing, and the schema has no default for it")
            found[field] = read_field(given[field] if field in given else definition["default"])
        return found

    return read


def _read_union(schema: list[Schema], name: str) -> Convert:
    """A document may name the type, as in {"string": "x"}. Otherwise the first type that it fits is taken."""
    has_null = any(each["type"] == "null" for each in schema)
    present = [each for each in schema if each["type"] != "null"]
    reads = [_make_reading(each, name) for each in present]
    names = {
        alias: at for at, each in enumerate(present) for alias in (_name_type(each).rpartition(".")[2], each["type"])
    }
    names |= {_name_type(each): at for at, each in enumerate(present)}

    def wrap(at: int, found: Any) -> Any:
        return found if len(present) == 1 else {f"member{n}": found if n == at else None for n in range(len(present))}

    def read(value: Any) -> Any:
        if value is None and has_null:
            return None
        if isinstance(value, dict) and len(value) == 1 and (branch := next(iter(value))) in names:
            try:
                return wrap(names[branch], reads[names[branch]](value[branch]))
            except Unwritable:
                pass  # a record or map with one field that is named like a type
        reasons = []
        for at, read_branch in enumerate(reads):
            try:
                return wrap(at, read_branch(value))
            except Unwritable as error:
                reasons.append(str(error))
        if len(reasons) == 1:
            raise Unwritable(reasons[0])
        kinds = ", ".join(_name_type(each) for each in schema)
        raise Unwritable(f"{name}: {value!r:.{_SHOWN_MAX}} fits none of the types {kinds}")

    return read


def _make_bytes_reading(schema: Schema, name: str) -> Convert:
    size = int(schema["size"]) if schema["type"] == "fixed" else None

    def read(value: Any) -> bytes:
        try:
            found = str(_expect(value, str, "text", name)).encode("latin-1")
        except UnicodeEncodeError:
            raise Unwritable(f"{name}: bytes are text of characters up to \\u00ff, one for each byte") from None
        if size is not None and len(found) != size:
            raise Unwritable(f"{name}: {len(found)} bytes, and the schema wants {size}")
        return found

    return read


def _make_decimal_reading(name: str) -> Convert:
    def read(value: Any) -> Decimal:
        try:
            if isinstance(value, str | int | Decimal) and not isinstance(value, bool):
                return Decimal(value)
        except InvalidOperation:
            pass
        raise Unwritable(f"{name}: {value!r:.{_SHOWN_MAX}} is not a decimal")

    return read


def _make_enum_reading(schema: Schema, name: str) -> Convert:
    def read(value: Any) -> str:
        if value not in schema["symbols"]:
            raise Unwritable(f"{name}: {value!r:.{_SHOWN_MAX}} is none of the symbols {', '.join(schema['symbols'])}")
        return str(value)

    return read


def _make_timestamp_reading(logical: str, name: str) -> Convert:
    unit = timedelta(milliseconds=1) if logical.endswith("millis") else timedelta(microseconds=1)
    is_local = logical.startswith("local-")

    def parse(text: str) -> datetime:
        found = datetime.fromisoformat(text)
        if is_local:
            return found.replace(tzinfo=None)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def count(number: int) -> datetime:
        return (_EPOCH.replace(tzinfo=None) if is_local else _EPOCH) + number * unit

    return lambda value: _read_time(value, parse, count, name)


def _read_time(value: Any, parse: Callable[[str], Any], count: Callable[[int], Any], name: str) -> Any:
    try:
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return count(value)
    except (ValueError, OverflowError):
        pass
    raise Unwritable(f"{name}: {value!r:.{_SHOWN_MAX}} is not a time such as 2026-01-31T18:00:00Z")


def _read_simple(value: Any, kind: str, name: str) -> Any:
    if kind in ("float", "double") and isinstance(value, int | Decimal | float) and not isinstance(value, bool):
        return float(value)
    if kind in ("int", "long"):
        limit = 1 << ((_INT_BITS if kind == "int" else _LONG_BITS) - 1)
        if isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit:
            return value
    elif isinstance(value, _SIMPLE.get(kind, ())):
        return value
    raise Unwritable(f"{name}: {value!r:.{_SHOWN_MAX}} does not fit Avro's {kind}")


_SIMPLE: dict[str, type] = {"null": type(None), "boolean": bool, "string": str}
