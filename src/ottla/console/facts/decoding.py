"""Keys and values as people read them: JSON, text, numbers, bytes; Avro, Protobuf and JSON through a schema registry.

With `auto` a value that begins with the id of a registered schema is decoded with it; otherwise it is shown as JSON, as
text, or as bytes in hexadecimal, whichever fits first. Protobuf needs the package protobuf, which the extra `spark`
installs.

Searches and exports take the whole value (`decode`). A page shows the beginning of a long one, and only that is parsed
and written (`show`): a page of records of a megabyte would take half a minute otherwise.
"""

from codecs import getincrementaldecoder
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
_SPACES = str.maketrans("", "", "\n\r\t")
LINE_MAX = 300
"""Characters of a value in a row."""
SHOWN_MAX = 32 * 1024
"""Bytes of a value, and characters of its text, in the details of a row. The whole can be downloaded."""
_DUMPED_MAX = 16 * 1024
"""Bytes of a value that are shown with their addresses."""


class Decoded(NamedTuple):
    """A whole key or value."""

    kind: str
    """null, empty, json, text, hex, a number, avro, protobuf."""
    content: Any
    """The document of JSON, Avro and Protobuf, bytes if the kind is hex, and a text otherwise."""
    is_document: bool = False
    note: str = ""
    """Which schema was used, or why it could not be."""

    @property
    def text(self) -> str:
        """A document is one line."""
        if self.is_document:
            return json_text.write(self.content, indented=False)
        return self.content.hex() if isinstance(self.content, bytes) else str(self.content)


class Shown(NamedTuple):
    """A key or a value on a page."""

    kind: str
    line: str
    """The beginning, in one line."""
    pretty: str
    note: str = ""
    is_cut: bool = False
    """Whether `pretty` is only the beginning."""


NULL = Decoded("null", "null")
EMPTY = Decoded("empty", "")


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
        """For a page: of a long value only the beginning."""
        if value is not None and len(value) > SHOWN_MAX:
            beginning = self._show_beginning(value, wanted)
            if beginning is not None:
                return beginning
        kind, content, is_document, note = self.decode(value, wanted)
        if is_document:
            line = json_text.write(content, indented=False, most=LINE_MAX + 1)
            pretty = json_text.write(content, most=SHOWN_MAX + 1)
        elif isinstance(content, bytes):
            line, pretty = content[:LINE_MAX].hex(), _dump(content)
            return Shown(kind, _cut_line(line), pretty, note, len(content) > _DUMPED_MAX)
        else:
            line = pretty = content
        return Shown(kind, _cut_line(line), pretty[:SHOWN_MAX], note, len(pretty) > SHOWN_MAX)

    def decode(self, value: bytes | None, wanted: str = AUTO) -> Decoded:
        if value is None:
            return NULL
        if not value:
            return EMPTY
        if wanted in _NUMBERS:
            return _decode_number(value, wanted)
        if wanted == "hex":
            return Decoded("hex", value)
        if self._is_registered(value, wanted):
            return self._decode_registered(value)
        return _decode_text(value, wanted)

    def _is_registered(self, value: bytes, wanted: str) -> bool:
        return wanted == "registry" or (wanted == AUTO and self._reader is not None and is_framed(value))

    def _show_beginning(self, value: bytes, wanted: str) -> Shown | None:
        """The beginning of a JSON document or a text, which is not parsed; None if it is neither."""
        if wanted not in (AUTO, "json", "text") or self._is_registered(value, wanted):
            return None
        try:
            text = getincrementaldecoder("utf-8")().decode(value[:SHOWN_MAX])  # may end within a character
        except UnicodeDecodeError:
            return None
        indented = json_text.indent(text) if wanted != "text" else None
        if indented is not None:
            return Shown("json", _cut_line(text), indented[:SHOWN_MAX], is_cut=True)
        return Shown("text", _cut_line(text), text, is_cut=True) if wanted != AUTO or _is_printable(text) else None

    def _decode_registered(self, value: bytes) -> Decoded:
        if self._reader is None:
            return _decode_text(value, AUTO)._replace(note="no schema registry is set (--schema-registry)")
        if not is_framed(value):
            return _decode_text(value, AUTO)._replace(note="does not begin with the id of a schema")
        try:
            kind, number, document = self._reader.read(value)
        except (ValueError, RegistryError) as error:  # the page shows the bytes instead
            reason = " ".join(str(error).split())
            return Decoded("hex", value, note=f"schema {find_number(value)}: {reason}")
        return Decoded(kind.lower(), document, is_document=True, note=f"{kind.lower()}, schema {number}")


def _decode_number(value: bytes, wanted: str) -> Decoded:
    try:
        (number,) = _NUMBERS[wanted].unpack(value)
    except StructError:
        return Decoded("hex", value, note=f"{len(value)} bytes are no {wanted}")
    return Decoded(wanted, str(number))


def _decode_text(value: bytes, wanted: str) -> Decoded:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Decoded("hex", value)
    if wanted != "text":
        try:
            document = json_text.parse(text)
        except NotJson:
            if wanted == "json":
                return Decoded("text", text, note="no JSON")
        else:
            if wanted == "json" or isinstance(document, dict | list):
                return Decoded("json", document, is_document=True)
    return Decoded("text", text) if wanted != AUTO or _is_printable(text) else Decoded("hex", value)


def _is_printable(text: str) -> bool:
    return text.translate(_SPACES).isprintable()


def _cut_line(text: str) -> str:
    line = " ".join(text[: 4 * LINE_MAX].split()) if any(each in text for each in "\n\r\t") else text
    return line if len(line) <= LINE_MAX else line[:LINE_MAX] + "…"


def _dump(value: bytes) -> str:
    """Bytes in hexadecimal, with their addresses and characters."""
    lines = []
    for position in range(0, min(len(value), _DUMPED_MAX), 16):
        part = value[position : position + 16]
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{position:08x}  {part.hex(' '):<47}  {characters}")
    if len(value) > _DUMPED_MAX:
        lines.append(f"… and {len(value) - _DUMPED_MAX} bytes more")
    return "\n".join(lines)
