"""Reads and writes single values with the schemas of a registry: a zero byte, the schema's id, the value.

Of a Protobuf value, indexes before the value say which message of its schema it is.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.pipeline import json_text
from ottla.pipeline.documents.json_schema import check_document
from ottla.pipeline.registry import MAGIC, PREFIX_SIZE, RegisteredSchema, Registry

READERS_MAX = 1_000
AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"

Write = Callable[[bytes], bytes]
"""Writes the JSON text of a document. ValueError, with the reason in one line, if it does not fit the schema."""

_Read = Callable[[bytes, int], Any]


class Document(NamedTuple):
    kind: str
    """AVRO, JSON or PROTOBUF."""
    number: int
    """The id of the schema."""
    content: Any


def is_framed(value: bytes) -> bool:
    """Whether the value begins like one that was written with a registered schema."""
    return len(value) >= PREFIX_SIZE and value[0] == MAGIC


def find_number(value: bytes) -> int:
    return int.from_bytes(value[1:PREFIX_SIZE], "big")


class DocumentReader:
    """Reads values with the schemas that they name. Schemas are cached: the one of an id never changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._readers: dict[tuple[int, tuple[int, ...]], tuple[str, _Read]] = {}

    def read(self, value: bytes) -> Document:
        """ValueError if the value has no schema id or does not fit its schema, UnknownSchema if the registry does not
        have the schema, RegistryError if it does not answer."""
        if not is_framed(value):
            raise ValueError("it does not begin with the id of a schema")
        number = find_number(value)
        indexes, start = self._read_indexes(number, value)
        found = self._readers.get((number, indexes))
        if found is None:
            if len(self._readers) >= READERS_MAX:
                self._readers.clear()
            found = self._readers[number, indexes] = self._make_reader(self._registry.by_number(number), indexes)
        kind, read = found
        try:
            return Document(kind, number, read(value, start))
        except Exception as error:  # the libraries raise whatever damaged bytes lead them to
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"not the {kind.title()} of schema {number}: {reason}") from None

    def _read_indexes(self, number: int, value: bytes) -> tuple[tuple[int, ...], int]:
        if self._registry.by_number(number).kind != PROTOBUF:
            return (), PREFIX_SIZE
        from ottla.pipeline.formats.avro_reading import Unreadable
        from ottla.pipeline.formats.protobuf_messages import read_indexes

        try:
            return read_indexes(value, PREFIX_SIZE)
        except (Unreadable, IndexError):
            raise ValueError(f"it does not say which message of schema {number} it is") from None

    def _make_reader(self, schema: RegisteredSchema, indexes: tuple[int, ...]) -> tuple[str, _Read]:
        if schema.kind == JSON:
            return JSON, lambda value, start: json_text.parse(value[start:].decode())
        if schema.kind == PROTOBUF:
            return PROTOBUF, self._make_protobuf_reader(schema, indexes)
        from ottla.pipeline.documents.avro import make_document_reader

        return AVRO, make_document_reader(schema.text)

    def _make_protobuf_reader(self, schema: RegisteredSchema, indexes: tuple[int, ...]) -> _Read:
        require_protobuf()
        from google.protobuf.json_format import MessageToDict

        from ottla.pipeline.formats.protobuf_messages import find_message_class, message_at

        files = self._registry.files(schema)
        message_class = find_message_class(files, message_at(files[-1], indexes))
        return lambda value, start: MessageToDict(
            message_class.FromString(value[start:]), preserving_proto_field_name=True
        )


def make_document_writer(registry: Registry, schema: RegisteredSchema, message: str = "") -> Write:
    """The function that writes documents with a registered schema, whose number is known. `message` is the full name of
    a Protobuf message; without it the first of the schema is written."""
    assert schema.number is not None
    prefix = bytes([MAGIC]) + schema.number.to_bytes(4, "big")
    if schema.kind == PROTOBUF:
        return _make_protobuf_writer(registry, schema, prefix, message)
    if message:
        raise ValueError(f"schema {schema.number} is {schema.kind.title()}; only Protobuf has messages")
    if schema.kind == JSON:
        return _make_json_writer(json.loads(schema.text), prefix)
    from ottla.pipeline.documents.avro import make_document_writer

    encode = make_document_writer(schema.text)
    return lambda document: prefix + encode(document)


def _make_json_writer(schema: Any, prefix: bytes) -> Write:
    def write(document: bytes) -> bytes:
        check_document(json.loads(document), schema)
        return prefix + document

    return write


def _make_protobuf_writer(registry: Registry, schema: RegisteredSchema, prefix: bytes, message: str) -> Write:
    require_protobuf()
    from google.protobuf.json_format import Parse, ParseError

    from ottla.pipeline.formats.protobuf_messages import (
        find_message_class,
        find_message_indexes,
        message_at,
        write_indexes,
    )

    files = registry.files(schema)
    name = message or message_at(files[-1], (0,))
    message_class = find_message_class(files, name)
    start = prefix + write_indexes(find_message_indexes(files, name))

    def write(document: bytes) -> bytes:
        try:
            found = Parse(document, message_class())
        except ParseError as error:
            raise ValueError(str(error)) from None
        return start + bytes(found.SerializeToString(deterministic=True))

    return write


def require_protobuf() -> None:
    try:
        from google.protobuf import message  # noqa: F401
    except ImportError:
        raise ValueError("Protobuf needs the package protobuf: pip install protobuf") from None
