"""Keys and values as people read them: JSON, text, numbers, bytes; Avro, Protobuf and JSON through a schema registry.

With `auto` a value that begins with the id of a registered schema is decoded with it; otherwise it is shown as JSON, as
text, or as bytes in hexadecimal, whichever fits first. Protobuf needs the package protobuf, which the extra `spark`
installs.
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from ottla.pipeline import json_text
from ottla.pipeline.documents.registered import DocumentReader, find_number, is_framed
from ottla.pipeline.json_text import NotJson
from ottla.pipeline.registry import Registry, RegistryError

AUTO = "auto"
FORMATS = (AUTO, "json", "text", "hex", "int32", "int64", "float", "double", "registry")
_NUMBERS = {"int32": Struct(">i"), "int64": Struct(">q"), "float": Struct(">f"), "double": Struct(">d")}
_PRINTABLE = {"\n", "\r", "\t"}
_DUMPED_MAX = 16 * 1024
"""Bytes of a value that are shown with their addresses."""


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
        self._reader: DocumentReader | None = None
        if registry_settings.get("schema.registry.url"):
            self._reader = DocumentReader(Registry(registry_settings))

    @property
    def has_registry(self) -> bool:
        return self._reader is not None

    def show(self, value: bytes | None, wanted: str = AUTO) -> Shown:
        if value is None:
            return NULL
        if not value:
            return EMPTY
        if wanted in _NUMBERS:
            return _show_number(value, wanted)
        if wanted == "hex":
            return show_hex(value)
        if wanted == "registry" or (wanted == AUTO and self._reader is not None and is_framed(value)):
            return self._show_registered(value)
        return _show_text(value, wanted)

    def _show_registered(self, value: bytes) -> Shown:
        if self._reader is None:
            return _show_text(value, AUTO)._replace(note="no schema registry is set (--schema-registry)")
        if not is_framed(value):
            return _show_text(value, AUTO)._replace(note="does not begin with the id of a schema")
        try:
            kind, number, document = self._reader.read(value)
        except (ValueError, RegistryError) as error:  # the page shows the bytes instead
            return show_hex(value)._replace(note=f"schema {find_number(value)}: {' '.join(str(error).split())}")
        kind = kind.lower()
        plain = json_text.write(document, indented=False)
        return Shown(kind, plain, json_text.write(document), document, f"{kind}, schema {number}")


def show_hex(value: bytes) -> Shown:
    lines = []
    for position in range(0, min(len(value), _DUMPED_MAX), 16):
        part = value[position : position + 16]
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{position:08x}  {part.hex(' '):<47}  {characters}")
    if len(value) > _DUMPED_MAX:
        lines.append(f"… and {len(value) - _DUMPED_MAX} bytes more")
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
