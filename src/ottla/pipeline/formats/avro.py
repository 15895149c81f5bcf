"""Decodes Avro's binary encoding. The writer's schema may differ from the reader's.

This module makes columns; `avro_schemas.py` parses schemas, `avro_reading.py` makes the functions that read values. The
Arrow types are those of Spark's own Avro source: an enum is a string, fixed is binary, a union of null and one type is
that type, and any other union is a struct with one field for each of its types, in order.
"""

from typing import Any

import pyarrow as pa

from ottla.pipeline.formats import Decoded
from ottla.pipeline.formats.avro_reading import SchemaMismatch, Unreadable, make_reader
from ottla.pipeline.formats.avro_schemas import Schema, parse_schema

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_PRECISION_MAX = 38


def derive_type(schema: Schema) -> pa.DataType:
    """The Arrow type of a schema."""
    if isinstance(schema, list):
        present = [each for each in schema if each["type"] != "null"]
        if len(present) == 1:
            return derive_type(present[0])
        return pa.struct([pa.field(f"member{at}", derive_type(each)) for at, each in enumerate(present)])
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = int(schema.get("precision", 0))
        if not 0 < precision <= _PRECISION_MAX:
            raise ValueError(f"Avro: a decimal of {precision} digits; a column holds up to {_PRECISION_MAX}")
        return pa.decimal128(precision, int(schema.get("scale", 0)))
    if kind == "record":
        return pa.struct([pa.field(field["name"], derive_type(field["type"])) for field in schema["fields"]])
    if kind == "array":
        return pa.list_(derive_type(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), derive_type(schema["values"]))
    if kind in ("enum", "fixed"):
        return pa.string() if kind == "enum" else pa.binary()
    return _LOGICAL.get((kind, logical), _PRIMITIVES[kind])


class Avro:
    """`schema` is the reader's schema, which determines the column's type. `writer` is the schema that the values were
    written with, if it differs."""

    def __init__(self, schema: str, writer: str | None = None) -> None:
        self._texts = schema, writer
        wanted = parse_schema(schema)
        self.type = derive_type(wanted)
        try:
            self._read = make_reader(wanted if writer is None else parse_schema(writer), wanted)
        except SchemaMismatch as error:
            raise ValueError(f"Avro: the writer's schema cannot be read as the reader's: {error}") from None

    def __reduce__(self) -> tuple[type["Avro"], tuple[str, str | None]]:
        return Avro, self._texts

    def decode(self, values: pa.Array) -> Decoded:
        read = self._read
        bad: dict[int, str] = {}
        found: list[Any] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                found.append(None)
                continue
            try:
                datum, position = read(value, 0)
                if position != len(value):
                    raise Unreadable(f"{len(value) - position} bytes too many")
                found.append(datum)
            except (Unreadable, IndexError, UnicodeDecodeError, ValueError, RecursionError) as error:
                bad[row] = f"not the Avro that the schema says: {_explain(error)}"
                found.append(None)
        return self._make_column(found, bad)

    def _make_column(self, found: list[Any], bad: dict[int, str]) -> Decoded:
        try:
            return Decoded(pa.array(found, self.type), bad)
        except (pa.ArrowInvalid, OverflowError, pa.ArrowTypeError):
            for row, datum in enumerate(found):  # find the values that do not fit into the column's type
                try:
                    pa.array([datum], self.type)
                except (pa.ArrowInvalid, OverflowError, pa.ArrowTypeError) as error:
                    bad[row] = f"a value that the column does not hold: {error}"
                    found[row] = None
            return Decoded(pa.array(found, self.type), bad)


def _explain(error: Exception) -> str:
    return "it is cut off" if isinstance(error, IndexError) else str(error)
