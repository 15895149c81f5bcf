"""Parcels: what the records of a repartition topic hold, so that an exchange does not cost a record for each row.

A parcel is an Arrow IPC stream with rows for one partition, ours included (see `rows.py`). Its schema's metadata has
the stream times of source partitions, for those that have sent no row to this partition: windows are closed by them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import orjson
import pyarrow as pa

PARCEL_BYTES_MAX: Final = 900_000
"""A record may have a million bytes with the default settings of producers, brokers and topics."""

_SOURCE_TIMES: Final = b"ottla.source_times"


class Parcel(NamedTuple):
    rows: pa.Table
    source_times: dict[int, int]
    """Stream times by the number of their source partition, as in the column SOURCE."""


def pack(rows: pa.Table, source_times: Mapping[int, int], *, bytes_max: int = PARCEL_BYTES_MAX) -> list[bytes]:
    """The rows as parcels of at most `bytes_max` bytes each, at least one. A parcel with a single row may be larger:
    whether its record can be sent is for the producer to say."""
    times = orjson.dumps({str(source): time for source, time in source_times.items()})
    schema = rows.schema.with_metadata({_SOURCE_TIMES: times})
    count = max(1, rows.num_rows * bytes_max // max(rows.nbytes, 1))
    parts = (rows.slice(start, count) for start in range(0, rows.num_rows, count)) if rows.num_rows else (rows,)
    return [parcel for part in parts for parcel in _write_or_halve(part, schema, bytes_max)]


def unpack(parcels: Iterable[bytes], columns: pa.Schema) -> Parcel:
    """The rows of all parcels, in order, and the newest of their source times.

    Rows have the schema `columns`. Parcels of an older version of the app may differ: a column that they do not have is
    null, and one that the schema does not have is dropped. ValueError with one line if a parcel is damaged or has
    another type in a column.
    """
    tables = [columns.empty_table()]
    times: dict[int, int] = {}
    for parcel in parcels:
        rows, newer = _read(parcel)
        tables.append(rows if rows.schema.equals(columns) else _conform(rows, columns))
        for source, time in newer.items():
            times[source] = max(time, times.get(source, time))
    return Parcel(pa.concat_tables(tables), times)


def _write_or_halve(rows: pa.Table, schema: pa.Schema, bytes_max: int) -> Iterator[bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write_batch(batch)
    written = sink.getvalue()
    if written.size <= bytes_max or rows.num_rows <= 1:
        yield written.to_pybytes()
        return
    middle = rows.num_rows // 2
    yield from _write_or_halve(rows.slice(0, middle), schema, bytes_max)
    yield from _write_or_halve(rows.slice(middle), schema, bytes_max)


def _read(parcel: bytes) -> tuple[pa.Table, dict[int, int]]:
    try:
        with pa.ipc.open_stream(parcel) as reader:
            rows = reader.read_all()
        times = orjson.loads(rows.schema.metadata[_SOURCE_TIMES])
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"not a parcel of a repartition topic: {str(error).partition(chr(10))[0]}") from None
    return rows.replace_schema_metadata(None), {int(source): time for source, time in times.items()}


def _conform(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    arrays = []
    for field in columns:
        at = rows.schema.get_field_index(field.name)
        if at < 0:
            arrays.append(pa.nulls(rows.num_rows, field.type))
            continue
        try:
            arrays.append(rows.column(at).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise ValueError(
                f"a parcel has {rows.schema.field(at).type} in column {field.name!r}, not {field.type}"
            ) from None
    return pa.Table.from_arrays(arrays, schema=columns)
