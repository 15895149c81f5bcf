"""Keys and values as people read them: JSON, text, numbers, bytes; Avro, Protobuf and JSON through a schema registry.

With `auto` a value that begins with the id of a registered schema is decoded with it; otherwise it is shown as JSON, as
text, or as bytes in hexadecimal, whichever fits first. Avro and Protobuf need pyarrow and protobuf, which the extra
`spark` installs.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from ottla.console.facts import json_text
from ottla.console.facts.json_text import NotJson

AUTO = "auto"
FORMATS = (AUTO, "json", "text", "hex", "int32", "int64", "float", "double", "registry")
_NUMBERS = {"int32": Struct(">i"), "int64": Struct(">q"), "float": Struct(">f"), "double": Struct(">d")}
_MAGIC = 0
_PREFIX_SIZE = 5
_SCHEMAS_MAX = 1_000
_PRINTABLE = {"\n", "\r", "\t"}


class Shown(NamedTuple):
    kind: str
    """null, empty, json, text, hex, a number, avro, protobuf."""
    text: str
    """One line."""
    pretty: str
    document: Any = None
    """The parsed document of JSON, Avro and Protobuf."""
    note: str = ""
    """Which schema was used, or why it could not be."""


NULL = Shown("null", "null", "null")
EMPTY = Shown("empty", "", "")


class Decoder:
    """Decodes with the schemas of one registry, if there is one. Schemas are cached: the one of an id never changes."""

    def __init__(self, registry_settings: Mapping[str, str]) -> None:
        """Raises ValueError if the settings of the registry are not valid."""
        self._registry: Any = None
        if registry_settings.get("schema.registry.url"):
            from ottla.pipeline.registry import Registry

            self._registry = Registry(registry_settings)
        self._readers: dict[tuple[int, tuple[int, ...]], Callable[[bytes], tuple[str, Any]]] = {}
        self._kinds: dict[int, str] = {}

    @property
    def has_registry(self) -> bool:
        return self._registry is not None

    def show(self, value: bytes | None, wanted: str = AUTO) -> Shown:
        if value is None:
            return NULL
        if not value:
            return EMPTY
        if wanted in _NUMBERS:
            return _show_number(value, wanted)
        if wanted == "hex":
            return show_hex(value)
        is_framed = value[0] == _MAGIC and len(value) >= _PREFIX_SIZE and self._registry is not None
        if wanted == "registry" or (wanted == AUTO and is_framed):
            return self._show_registered(value)
        return _show_text(value, wanted)

    def _show_registered(self, value: bytes) -> Shown:
        if self._registry is None:
            return _show_text(value, AUTO)._replace(note="no schema registry is set (--schema-registry)")
        if value[0] != _MAGIC or len(value) < _PREFIX_SIZE:
            return _show_text(value, AUTO)._replace(note="does not begin with the id of a schema")
        number = int.from_bytes(value[1:_PREFIX_SIZE], "big")
        try:
            kind, document = self._decode(number, value)
        except Exception as error:  # whatever the libraries make of damaged bytes: the page shows the bytes instead
            reason = " ".join(str(error).split()) or type(error).__name__
            return show_hex(value)._replace(note=f"schema {number}: {reason}")
        plain = json_text.write(document, indented=False)
        return Shown(kind, plain, json_text.write(document), document, f"{kind}, schema {number}")

    def _decode(self, number: int, value: bytes) -> tuple[str, Any]:
        schema = self._registry.by_number(number)
        if schema.kind == "JSON":
            return "json", json_text.parse(value[_PREFIX_SIZE:].decode())
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise ValueError(f"{schema.kind.title()} needs the extra 'spark' of Ottla") from None
        return (
            self._decode_avro(number, schema, value) if schema.kind == "AVRO" else self._decode_protobuf(schema, value)
        )

    def _decode_avro(self, number: int, schema: Any, value: bytes) -> tuple[str, Any]:
        from ottla.pipeline.formats.avro import parse_schema
        from ottla.pipeline.formats.avro_reading import make_reader

        reader = self._readers.get((number, ()))
        if reader is None:
            parsed = parse_schema(schema.text)
            read = make_reader(parsed, parsed)

            def reader(data: bytes) -> tuple[str, Any]:
                return "avro", read(data, _PREFIX_SIZE)[0]

            self._keep((number, ()), reader)
        return reader(value)

    def _decode_protobuf(self, schema: Any, value: bytes) -> tuple[str, Any]:
        from google.protobuf.json_format import MessageToDict

        from ottla.pipeline.formats.framed import message_at, read_indexes
        from ottla.pipeline.formats.protobuf import Protobuf

        number = int.from_bytes(value[1:_PREFIX_SIZE], "big")
        indexes, start = read_indexes(value, _PREFIX_SIZE)
        reader = self._readers.get((number, indexes))
        if reader is None:
            files = self._registry.files(schema)
            message_class = Protobuf(files, message_at(files[-1], indexes)).message_class

            def reader(data: bytes) -> tuple[str, Any]:
                message = message_class.FromString(data)
                return "protobuf", MessageToDict(message, preserving_proto_field_name=True)

            self._keep((number, indexes), reader)
        return reader(value[start:])

    def _keep(self, key: tuple[int, tuple[int, ...]], reader: Callable[[bytes], tuple[str, Any]]) -> None:
        if len(self._readers) >= _SCHEMAS_MAX:
            self._readers.clear()
        self._readers[key] = reader


def show_hex(value: bytes) -> Shown:
    lines = []
    for position in range(0, len(value), 16):
        part = value[position : position + 16]
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{position:08x}  {part.hex(' '):<47}  {characters}")
    return Shown("hex", value.hex(), "\n".join(lines))


def _show_number(value: bytes, wanted: str) -> Shown:
    try:
        (number,) = _NUMBERS[wanted].unpack(value)
    except StructError:
        return show_hex(value)._replace(note=f"{len(value)} bytes are no {wanted}")
    return Shown(wanted, str(number), str(number))


def _show_text(value: bytes, wanted: str) -> Shown:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return show_hex(value)
    if wanted != "text":
        try:
            document = json_text.parse(text)
        except NotJson:
            if wanted == "json":
                return Shown("text", _one_line(text), text, note="no JSON")
        else:
            if wanted == "json" or isinstance(document, dict | list):
                return Shown("json", json_text.write(document, indented=False), json_text.write(document), document)
    if wanted == AUTO and not all(each.isprintable() or each in _PRINTABLE for each in text):
        return show_hex(value)
    return Shown("text", _one_line(text), text)


def _one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text or "\r" in text or "\t" in text else text
