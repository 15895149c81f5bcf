"""Rows to records: what sinks, repartition topics and changelogs get."""

from collections.abc import Mapping
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.decoding import TYPES
from ottla.streams import formats, parcels
from ottla.streams.errors import FunctionFailed
from ottla.streams.planning.plan import PARCELS, SinkPlan
from ottla.streams.rows import DELETED, HEADERS, TIMESTAMP, stream_schema, table_schema, value_fields
from ottla.streams.state.keys import encode_keys
from ottla.streams.state.values import RowCodec
from ottla.streams.tasks.placement import choose_partitions

OUTGOING: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", TYPES["headers"]),
        ("timestamp", TYPES["timestamp"]),
        ("partition", pa.int32()),
    ]
)
"""The columns of records that a task writes. A row without a partition goes where its key says."""

Records = tuple[str, pa.Table]
"""A topic, and records for it with the schema OUTGOING."""


def schema_of_sink(sink: SinkPlan) -> pa.Schema:
    """The columns of rows in parcels."""
    if not sink.is_table:
        return stream_schema(sink.columns)
    return table_schema(sink.columns, sink.key, with_old=sink.has_old)


def write_rows(
    sink: SinkPlan, rows: pa.Table, *, partition: int, partition_count: int, source_times: Mapping[int, int]
) -> list[Records]:
    """The records for the rows of one sink. `partition` is that of the task, `partition_count` that of a parcels'
    topic, and `source_times` are the stream times to tell along with parcels."""
    if sink.holds == PARCELS:
        assert sink.topic is not None
        return _write_parcels(sink, sink.topic, rows, partition, partition_count, source_times)
    if not rows.num_rows:
        return []
    rows = rows.combine_chunks()
    if sink.topic is not None:
        return [(sink.topic, _encode(sink, rows))]
    assert sink.topic_column is not None
    topics = rows[sink.topic_column]
    if topics.null_count:
        raise FunctionFailed(f"{sink.label}: column {sink.topic_column!r} names no topic for a row")
    return [(name, _encode(sink, rows.filter(pc.equal(topics, name)))) for name in pc.unique(topics).to_pylist()]


def _encode(sink: SinkPlan, rows: pa.Table) -> pa.Table:
    names = sink.value_columns
    if names is None:
        names = tuple(each.name for each in value_fields(sink.columns, sink.key))
    keys = formats.encode_columns(sink.key_format, rows, sink.key) if sink.key else pa.nulls(len(rows), pa.binary())
    values = formats.encode_columns(sink.value_format, rows, names)
    missing = _all_null(rows, [name for name in names if name not in sink.key])
    if sink.is_table and DELETED in rows.column_names:
        missing = pc.or_(missing, pc.fill_null(rows[DELETED], False))
    values = pc.if_else(missing, pa.scalar(None, pa.binary()), values)
    return to_records(keys, values, rows[HEADERS], rows[TIMESTAMP], pa.nulls(len(rows), pa.int32()))


def _all_null(rows: pa.Table, names: list[str]) -> pa.Array:
    """Which rows have no value: all their columns are null, as those of a record without a value."""
    missing = pa.repeat(pa.scalar(bool(names)), len(rows))
    for name in names:
        missing = pc.and_(missing, pc.is_null(rows[name]))
    return missing


def _write_parcels(
    sink: SinkPlan, topic: str, rows: pa.Table, partition: int, count: int, source_times: Mapping[int, int]
) -> list[Records]:
    rows = rows.select(schema_of_sink(sink).names).combine_chunks()
    told = dict(source_times) if sink.tells_times else {}
    if sink.partition_by is None:
        targets = np.full(len(rows), partition, np.int64)
        listeners = [partition]
    else:
        targets = choose_partitions(encode_keys(rows, sink.partition_by), count, partition % count)
        listeners = list(range(count))
    places, values, times = [], [], []
    for target in np.unique(targets).tolist() if not told else listeners:
        part = rows.filter(pa.array(targets == target))
        if not len(part) and not told:
            continue
        packed = _pack(part, told)
        latest = pc.max(part[TIMESTAMP]).as_py() if len(part) else max(told.values())
        places += [target] * len(packed)
        values += packed
        times += [latest] * len(packed)
    if not values:
        return []
    nothing = pa.nulls(len(values))
    return [(topic, to_records(nothing, pa.array(values, pa.binary()), nothing, pa.array(times), pa.array(places)))]


def _pack(rows: pa.Table, source_times: Mapping[int, int]) -> list[bytes]:
    """Times come with the last parcel: a reader that has only the first ones must not close windows of the others."""
    packed = parcels.pack(rows, source_times)
    if len(packed) == 1 or not source_times:
        return packed
    return [*parcels.pack(rows, {}), *parcels.pack(rows.slice(0, 0), source_times)]


def write_late_rows(rows: pa.Table, key: tuple[str, ...], names: tuple[str, ...] | None = None) -> pa.Table:
    """Records for late rows: the columns `names`, or all of the user's, as JSON, by the key of the step."""
    if names is None:
        names = tuple(name for name in rows.column_names if not name.startswith("_"))
    columns = pa.schema([rows.schema.field(name) for name in names])
    values = pa.array(RowCodec(columns).encode(rows), pa.binary())
    keys = pa.array(encode_keys(rows, key), pa.binary())
    return to_records(keys, values, rows[HEADERS], rows[TIMESTAMP], pa.nulls(len(rows), pa.int32()))


def write_changes(
    changes: Mapping[bytes, bytes | None], times_ms: Mapping[bytes, int], *, partition: int, time_ms: int
) -> pa.Table:
    """The records of a changelog for what a batch has changed in a store; no value for a deleted key. `time_ms` is the
    time of keys that are not in `times_ms`."""
    keys, values = list(changes.keys()), list(changes.values())
    times = pa.array(map(times_ms.get, keys, repeat(time_ms)), pa.int64(), size=len(keys))
    places = pa.repeat(pa.scalar(partition, pa.int32()), len(keys))
    return to_records(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.nulls(len(keys)), times, places)


def to_records(
    keys: pa.Array, values: pa.Array, headers: pa.Array, times_ms: pa.Array, partitions: pa.Array
) -> pa.Table:
    stamps = times_ms.cast(pa.timestamp("ms", "UTC")).cast(TYPES["timestamp"])
    columns = [keys, values, headers.cast(TYPES["headers"]), stamps, partitions.cast(pa.int32())]
    return pa.table(columns, schema=OUTGOING)
