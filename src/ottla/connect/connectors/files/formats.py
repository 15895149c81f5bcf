"""Formats of files that sinks write: JSON lines, CSV, Parquet, Avro, and lines of text.

A file is made in memory as a whole, so a sink may write it to a directory or put it into a bucket.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ottla.connect.connectors.files.avro_files import write_avro
from ottla.connect.converters.choice import make_converter
from ottla.connect.converters.json_values import dump_without_schema
from ottla.connect.data.arrow_types import normalise
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import records_to_columns
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import ConnectError

Rows = RecordColumns | Sequence[Record]


@dataclass(frozen=True)
class FileFormat:
    extension: str
    write: Callable[[Schema, pa.Array], bytes]
    """The content of a file with these values."""


JSON_LINE: Final = Schema(Type.STRING, name="ottla.JsonLine")
"""Of values that are JSON already, because they have no schema and the file has none either."""


def to_columns(rows: Rows, keeps_json: bool = False) -> list[RecordColumns]:
    """Rows as columns, a new one wherever the schema changes. Values without a schema get one from what they are, or
    are `JSON_LINE` if they are for a file of JSON and nobody asks for their fields.

    Tombstones are left out: a row of a file has a value.
    """
    if isinstance(rows, RecordColumns):
        return [_without_tombstones(rows)] if rows.value.null_count else [rows]
    found: list[RecordColumns] = []
    run: list[Record] = []
    for record in rows:
        if record.value is None:
            continue
        if run and record.value_schema != run[0].value_schema:
            found.append(_columns_of(run, keeps_json))
            run = []
        run.append(record)
    return [*found, _columns_of(run, keeps_json)] if run else found


def _without_tombstones(rows: RecordColumns) -> RecordColumns:
    kept = rows.value.is_valid()
    columns = (each if each is None else each.filter(kept) for each in (rows.timestamp, rows.partition, rows.offset))
    return RecordColumns(rows.topic, rows.value_schema, rows.value.filter(kept), None, None, *columns)


def _columns_of(records: Sequence[Record], keeps_json: bool) -> RecordColumns:
    times = pa.array([each.timestamp for each in records], pa.int64())
    offsets = pa.array([each.offset for each in records], pa.int64())
    if keeps_json and records[0].value_schema is None:
        lines = pa.array([dump_without_schema(each.value).decode() for each in records], pa.string())
        return RecordColumns(records[0].topic, JSON_LINE, lines, timestamp=times, offset=offsets)
    plain = [
        Record(each.topic, each.value, each.value_schema, timestamp=each.timestamp, offset=each.offset)
        for each in records
    ]
    columns = records_to_columns(plain)
    if columns is not None:
        return columns
    try:
        schema, values = normalise(pa.array([each.value for each in records]))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConnectError(f"the values have no schema and no common type: {error}") from None
    return RecordColumns(records[0].topic, schema, values, timestamp=times, offset=offsets)


def make_format(name: str, config: Mapping[str, Any]) -> FileFormat:
    return _FORMATS[name](config)


def _make_json(_: Mapping[str, Any]) -> FileFormat:
    converter = make_converter("json", {"schemas.enable": "false"}, False)

    def write(schema: Schema, values: pa.Array) -> bytes:
        is_json = schema == JSON_LINE
        lines = (values.cast(pa.binary()) if is_json else converter.columns_to_bytes("", schema, values)).to_pylist()
        return b"\n".join(lines) + b"\n"

    return FileFormat("json", write)


def _make_csv(_: Mapping[str, Any]) -> FileFormat:
    def write(schema: Schema, values: pa.Array) -> bytes:
        out = io.BytesIO()
        try:
            pa_csv.write_csv(_to_table(schema, values), out)
        except pa.ArrowInvalid as error:
            raise ConnectError(f"CSV has no place for nested values: {error}") from None
        return out.getvalue()

    return FileFormat("csv", write)


def _make_parquet(config: Mapping[str, Any]) -> FileFormat:
    codec = config.get("parquet.codec", "snappy")

    def write(schema: Schema, values: pa.Array) -> bytes:
        out = io.BytesIO()
        pq.write_table(_to_table(schema, values), out, compression=codec)
        return out.getvalue()

    return FileFormat("snappy.parquet" if codec == "snappy" else "parquet", write)


def _make_avro(_: Mapping[str, Any]) -> FileFormat:
    def write(schema: Schema, values: pa.Array) -> bytes:
        name = (schema.name or "ConnectDefault").rpartition(".")[2]
        return write_avro(_to_table(schema, values).to_struct_array().combine_chunks(), name)

    return FileFormat("avro", write)


def _make_text(_: Mapping[str, Any]) -> FileFormat:
    def write(schema: Schema, values: pa.Array) -> bytes:
        if schema.type not in (Type.STRING, Type.BYTES):
            raise ConnectError(f"lines of text are strings or bytes, and these values are {schema.type.value}")
        return b"\n".join(values.cast(pa.binary()).to_pylist()) + b"\n"

    return FileFormat("txt", write)


def _to_table(schema: Schema, values: pa.Array) -> pa.Table:
    """A struct's fields are the columns. Another value is in a column `value`."""
    if schema.type is Type.STRUCT:
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(values)])
    return pa.table({"value": values})


_FORMATS: Final[Mapping[str, Callable[[Mapping[str, Any]], FileFormat]]] = {
    "json": _make_json,
    "csv": _make_csv,
    "parquet": _make_parquet,
    "avro": _make_avro,
    "text": _make_text,
}
FORMATS: Final = tuple(_FORMATS)
