"""Decodes values as the clients of a schema registry write them: a zero byte, the schema's id in four bytes, the value.

A Protobuf schema may define several messages. Before a Protobuf value comes therefore a list of indexes that says which
message it is, outermost first; a single zero byte means the first message. The column's type comes from the reader's
schema. Each value is read with the schema whose id it carries.
"""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ottla.pipeline.formats import Decoded, Format, scatter
from ottla.pipeline.formats.avro import Avro
from ottla.pipeline.formats.avro_reading import Unreadable
from ottla.pipeline.formats.protobuf import Protobuf
from ottla.pipeline.formats.protobuf_messages import message_at, read_indexes
from ottla.pipeline.formats.text import Json, type_of_json_schema
from ottla.pipeline.registry import MAGIC, PREFIX_SIZE, RegisteredSchema, Registry, UnknownSchema

Key = tuple[int, tuple[int, ...]]
"""A schema's id and, for Protobuf, the indexes of the message in it."""


class Framed:
    """`schema` is the reader's schema: the text of an Avro schema, an Arrow type for JSON, a descriptor set for
    Protobuf. None stands for the newest schema of the subject."""

    def __init__(
        self,
        registry: Registry,
        kind: str,
        subject: str,
        schema: Any = None,
        message: str = "",
        newest: RegisteredSchema | None = None,
    ) -> None:
        """`newest` is the newest schema of the subject. If it is needed and not given, the registry is asked for it."""
        self._registry = registry
        self._kind = kind.upper()
        self._subject = subject
        self._schema = schema
        self._message = message
        self._formats: dict[Key, Format | str] = {}
        self._reader = newest or registry.latest(subject) if schema is None else None
        if self._reader is not None and self._reader.kind != self._kind:
            raise ValueError(f"subject {subject!r} holds {self._reader.kind}, not {self._kind}")
        self.type = self._make_reader_format().type

    def __reduce__(self) -> tuple[type["Framed"], tuple[Any, ...]]:
        """A pickled copy keeps the reader's schema, even if a newer one has been registered meanwhile."""
        return Framed, (self._registry, self._kind, self._subject, self._schema, self._message, self._reader)

    def decode(self, values: pa.Array) -> Decoded:
        bad: dict[int, str] = {}
        groups: dict[Key, tuple[list[int], list[bytes]]] = {}
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                key, start = self._parse_prefix(value)
            except (Unreadable, IndexError):
                bad[row] = "it does not begin with the id of a schema, as values written with a schema registry do"
                continue
            rows, contents = groups.setdefault(key, ([], []))
            rows.append(row)
            contents.append(value[start:])
        parts: list[tuple[list[int], pa.Array]] = []
        for key, (rows, contents) in groups.items():
            form = self._format(key)
            if isinstance(form, str):
                bad.update(dict.fromkeys(rows, form))
                continue
            column, wrong = form.decode(pa.array(contents, pa.binary()))
            parts.append((rows, column))
            bad.update({rows[at]: reason for at, reason in wrong.items()})
        return Decoded(scatter(parts, len(values), self.type), bad)

    def _parse_prefix(self, value: bytes) -> tuple[Key, int]:
        """What comes before the value, and the position where the value itself begins."""
        if len(value) < PREFIX_SIZE or value[0] != MAGIC:
            raise Unreadable("no magic byte")
        number = int.from_bytes(value[1:PREFIX_SIZE], "big")
        if self._kind != "PROTOBUF":
            return (number, ()), PREFIX_SIZE
        indexes, position = read_indexes(value, PREFIX_SIZE)
        return (number, indexes), position

    def _format(self, key: Key) -> Format | str:
        """The format that reads values of this schema, or the reason why none does. If the registry cannot be reached,
        the read fails."""
        if key not in self._formats:
            try:
                self._formats[key] = self._make_format(key)
            except (UnknownSchema, ValueError) as error:
                self._formats[key] = f"schema {key[0]}: {error}"
        return self._formats[key]

    def _make_format(self, key: Key) -> Format:
        found = self._registry.by_number(key[0])
        if found.kind != self._kind:
            raise ValueError(f"it is {found.kind}, not {self._kind}")
        form = _MAKERS[self._kind](self, found, key[1])
        if form.type != self.type:
            raise ValueError(f"it makes {form.type}, and the column is {self.type}")
        return form

    def _make_reader_format(self) -> Format:
        if self._kind not in _MAKERS:
            raise ValueError(f"a registry has no {self._kind.lower()}; it has avro, json and protobuf")
        return _MAKERS[self._kind](self, self._reader, (0,))

    def _make_avro(self, writer: RegisteredSchema | None, _: tuple[int, ...]) -> Format:
        wanted = self._schema if self._reader is None else self._reader.text
        return Avro(wanted, wanted if writer is None else writer.text)

    def _make_json(self, _: RegisteredSchema | None, __: tuple[int, ...]) -> Format:
        """JSON values contain the names of their fields, so all are read with the reader's schema."""
        return Json(self._schema if self._reader is None else type_of_json_schema(json.loads(self._reader.text)))

    def _make_protobuf(self, schema: RegisteredSchema | None, indexes: tuple[int, ...]) -> Format:
        """Protobuf matches fields by number across versions, so all values are read with the reader's schema."""
        if self._reader is None:
            return Protobuf.of_set(self._schema, self._message)
        name = self._message or message_at(self._registry.files(schema or self._reader)[-1], indexes)
        return Protobuf(self._registry.files(self._reader), name)


_MAKERS: dict[str, Callable[[Framed, RegisteredSchema | None, tuple[int, ...]], Format]] = {
    "AVRO": Framed._make_avro,
    "JSON": Framed._make_json,
    "PROTOBUF": Framed._make_protobuf,
}
