"""Decodes text: UTF-8 to strings, and JSON to columns of a given type.

Arrow parses the JSON of all rows at once. If that fails, the rows are halved until the bad ones are found. So values
without errors are parsed once, and each bad one costs a few more passes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ottla.pipeline.formats import Decoded, scatter

_NEWLINE = ord("\n")


class Text:
    """Decodes UTF-8."""

    type = pa.string()

    def decode(self, values: pa.Array) -> Decoded:
        try:
            return Decoded(values.cast(pa.string()), {})
        except pa.ArrowInvalid:
            return self._decode_one_by_one(values)

    def _decode_one_by_one(self, values: pa.Array) -> Decoded:
        bad: dict[int, str] = {}
        found: list[str | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                found.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                bad[row] = f"not UTF-8: {error.reason} at byte {error.start}"
                found.append(None)
        return Decoded(pa.array(found, pa.string()), bad)


class Json:
    """Decodes JSON to a column of type `kind`: a struct for objects. Fields that the struct does not have are
    ignored."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", _parser_type(kind))]), unexpected_field_behavior="ignore"
        )
        try:
            self._parse(pa.array([b"null"], pa.binary()))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise ValueError(f"JSON cannot be read as {kind}: {error}") from None

    def __reduce__(self) -> tuple[type["Json"], tuple[pa.DataType]]:
        return Json, (self.type,)

    def decode(self, values: pa.Array) -> Decoded:
        present: Sequence[int] = range(len(values))
        if values.null_count:
            present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).tolist()
        bad: dict[int, str] = {}
        parts: list[tuple[Sequence[int], pa.Array]] = []
        whole = values if len(present) == len(values) else values.take(pa.array(present, pa.int64()))
        self._parse_or_halve(whole, present, parts, bad)
        if len(parts) == 1 and len(present) == len(values) and not bad:
            return Decoded(parts[0][1], {})
        return Decoded(scatter(parts, len(values), self.type), bad)

    def _parse_or_halve(
        self, values: pa.Array, rows: Sequence[int], parts: list[tuple[Sequence[int], pa.Array]], bad: dict[int, str]
    ) -> None:
        if not rows:
            return
        try:
            column = self._parse(values)
            if len(column) == len(rows):
                parts.append((rows, column))
                return
            reason = "not one JSON value"
        except pa.ArrowInvalid as error:
            reason = _describe_parse_error(error)
        if len(rows) == 1:
            bad[rows[0]] = reason
            return
        middle = len(rows) // 2
        self._parse_or_halve(values[:middle], rows[:middle], parts, bad)
        self._parse_or_halve(values[middle:], rows[middle:], parts, bad)

    def _parse(self, values: pa.Array) -> pa.Array:
        """Parses each value as the only field of an object on its own line, so that a value which is not exactly one
        JSON value makes the parser fail."""
        values.cast(pa.string())  # checks that the values are UTF-8, which the parser does not
        lines = self._lines(values)
        options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        table = pj.read_json(pa.BufferReader(lines), options, self._options)
        column = pa.concat_arrays(table.column("v").chunks)
        return column if column.type == self.type else column.cast(self.type)

    def _lines(self, values: pa.Array) -> pa.Buffer:
        """One line for each value. Newlines within a value become spaces: in JSON both are white space."""
        joined = _join_values(values)
        if np.count_nonzero(np.frombuffer(joined, np.uint8) == _NEWLINE) > len(values):
            joined = _join_values(pc.replace_substring(values, b"\n", b" "))
        return joined


def _parser_type(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow's parser is given for `kind`. The parser reads dates as numbers only, so dates are parsed as
    timestamps and cast afterwards."""
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parser_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parser_type(kind.value_type)))
    return kind


def _join_values(values: pa.Array) -> pa.Buffer:
    """Puts each value into `{"v":...}` and a line end. The result is the data buffer of one Arrow array, without a
    copy."""
    framed = pc.binary_join_element_wise(
        pa.scalar(b'{"v":', pa.binary()), values, pa.scalar(b"}\n", pa.binary()), pa.scalar(b"", pa.binary())
    )
    _, ends, content = framed.buffers()
    offsets = np.frombuffer(ends, np.int32)
    first, last = int(offsets[framed.offset]), int(offsets[framed.offset + len(framed)])
    return content.slice(first, last - first)


def _describe_parse_error(error: Exception) -> str:
    text = str(error).partition(" in row ")[0].removeprefix("JSON parse error: ")
    return f"not the JSON that the schema says: {text.replace('/v/', '').strip()}"


# JSON Schema

_SIMPLE = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "null": pa.null(),
}


def type_of_json_schema(schema: dict[str, Any], name: str = "the schema") -> pa.DataType:
    """The Arrow type for a JSON Schema of objects, arrays, simple types, and unions of null and one other type."""
    kinds = schema.get("type")
    if isinstance(kinds, list):
        kinds = [kind for kind in kinds if kind != "null"]
        kinds = kinds[0] if len(kinds) == 1 else kinds
    choices = [each for each in schema.get("oneOf", schema.get("anyOf", [])) if each.get("type") != "null"]
    if kinds is None and len(choices) == 1:
        return type_of_json_schema(choices[0], name)
    if kinds == "object" and "properties" in schema:
        fields = [pa.field(key, type_of_json_schema(each, key)) for key, each in schema["properties"].items()]
        return pa.struct(fields)
    if kinds == "array" and isinstance(schema.get("items"), dict):
        return pa.list_(type_of_json_schema(schema["items"], name))
    if kinds == "string" and schema.get("format") == "date-time":
        return pa.timestamp("us", "UTC")
    if isinstance(kinds, str) and kinds in _SIMPLE:
        return _SIMPLE[kinds]
    raise ValueError(f"{name}: there is no column type for the JSON schema {schema!r:.100}")


def make_json_schema(kind: pa.DataType) -> dict[str, Any]:
    """The JSON Schema of a type, as `ottla.streams` writes its values: everything may be null, and types that JSON
    lacks are strings."""
    found = _describe(kind)
    return {**found, "type": [found["type"], "null"]} if isinstance(found.get("type"), str) else found


def _describe(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"type": "object", "properties": {field.name: make_json_schema(field.type) for field in kind}}
    if pa.types.is_list(kind):
        return {"type": "array", "items": make_json_schema(kind.value_type)}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": make_json_schema(kind.item_type)}
    if pa.types.is_timestamp(kind):
        return {"type": "string", "format": "date-time"}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    return {"type": "number" if pa.types.is_floating(kind) else "string"}
