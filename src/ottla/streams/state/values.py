"""Values of state and of changelogs: JSON objects of the value columns, in the forms of `json_text.py`.

JSON, so that any consumer can read a changelog, and so that schemas may change: a field that is missing becomes null,
and one that the schema does not have is ignored. Arrow writes and parses a whole batch at once. Only batches with
values that its parser cannot read (NaN, maps, binary) are parsed row by row.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.json as pj

from ottla.streams.state.json_text import check_type, object_text
from ottla.streams.state.json_values import make_reader, make_writer, read_column


class RowCodec:
    """Encodes and decodes the columns of a schema. Other columns of a row are ignored."""

    def __init__(self, columns: pa.Schema) -> None:
        """Raises ValueError with one line if a column has a type without a JSON form."""
        for field in columns:
            check_type(field.type, field.name)
        self.columns = columns
        self._writers = {field.name: make_writer(field.type) for field in columns}
        self._readers = {field.name: make_reader(field.type, for_python=True) for field in columns}
        parsed = [parser_type(field.type) for field in columns]
        self._options: pj.ParseOptions | None = None
        if len(columns) and all(kind is not None for kind in parsed):
            fields = [field.with_type(kind) for field, kind in zip(columns, parsed, strict=True)]
            self._options = pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")

    def __reduce__(self) -> tuple[type["RowCodec"], tuple[pa.Schema]]:
        return RowCodec, (self.columns,)

    def encode(self, rows: pa.Table) -> list[bytes]:
        arrays = [take_column(rows, field) for field in self.columns]
        return as_bytes(object_text(self.columns.names, arrays, rows.num_rows))

    def decode(self, values: Sequence[bytes | None]) -> pa.Table:
        """The rows of these values; a row of nulls for None. Raises ValueError if a value does not fit the schema."""
        if self._options is not None and len(values):
            try:
                table = self._parse(values, self._options)
                if table.num_rows == len(values):
                    return table
            except pa.ArrowInvalid:
                pass  # parsed row by row: either that can read the value, or it says which one is wrong
        return self._decode_by_row(values)

    def encode_row(self, row: Mapping[str, Any]) -> bytes:
        """Raises ValueError that names the column if a value does not fit its type. Missing columns are null."""
        written = {}
        for name, write in self._writers.items():
            try:
                written[name] = write(row.get(name))
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from None
        try:
            return orjson.dumps(written)
        except orjson.JSONEncodeError as error:
            raise ValueError(f"{written!r:.100} cannot be written as JSON: {error}") from None

    def decode_row(self, value: bytes) -> dict[str, Any]:
        found = _load(value)
        row = {}
        for name, read in self._readers.items():
            try:
                row[name] = read(found.get(name))
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from None
        return row

    def _parse(self, values: Sequence[bytes | None], options: pj.ParseOptions) -> pa.Table:
        """Parses one line for each value. Values that are not one line of JSON make another number of rows."""
        lines = b"\n".join([b"{}" if value is None else value for value in values])
        read = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        return pj.read_json(pa.BufferReader(lines), read, options).cast(self.columns)

    def _decode_by_row(self, values: Sequence[bytes | None]) -> pa.Table:
        objects = [{} if value is None else _load(value) for value in values]
        arrays = []
        for field in self.columns:
            try:
                arrays.append(read_column([found.get(field.name) for found in objects], field.type))
            except ValueError as error:
                raise ValueError(f"column {field.name!r}: {error}") from None
        if not arrays:
            return pa.Table.from_struct_array(pa.array([{}] * len(values), pa.struct([])))
        return pa.Table.from_arrays(arrays, schema=self.columns)


def take_column(rows: pa.Table, field: pa.Field) -> pa.Array:
    """The column of a table as one array of the field's type."""
    column = rows.column(field.name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return column if column.type == field.type else column.cast(field.type)


def as_bytes(texts: pa.Array) -> list[bytes]:
    """A column of strings or bytes as a list; through numpy, which is several times as fast as `to_pylist`."""
    found: list[bytes] = texts.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def _load(value: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{value!r:.60} is not a JSON object")
    return found


def parser_type(kind: pa.DataType) -> pa.DataType | None:
    """The type that Arrow's parser is given for `kind`, or None if it cannot read the form of this type. It reads dates
    as numbers only, so they are parsed as timestamps and cast afterwards."""
    types = pa.types
    if types.is_map(kind) or types.is_binary(kind) or types.is_null(kind):
        return None
    if types.is_date(kind):
        return pa.timestamp("s")
    if types.is_struct(kind):
        inner = [parser_type(field.type) for field in kind]
        if not inner or any(each is None for each in inner):
            return None
        return pa.struct([field.with_type(each) for field, each in zip(kind, inner, strict=True)])
    if types.is_list(kind):
        item = parser_type(kind.value_type)
        return None if item is None else pa.list_(kind.value_field.with_type(item))
    return kind
