"""Records of a source partition to rows: keys and values become columns, each row gets its time and its stream time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.formats import REASON
from ottla.streams import formats, parcels
from ottla.streams.planning.plan import PARCELS, SourcePlan
from ottla.streams.rows import (
    DELETED,
    HEADERS,
    HEADERS_TYPE,
    HIDDEN,
    OFFSET,
    ORDER,
    PARTITION,
    SOURCE,
    STREAM_TIME,
    TIMESTAMP,
    TOPIC,
    stream_schema,
    table_schema,
    value_fields,
)

NO_TIME = -1
"""The stream time of a partition of which no record was read yet."""


@dataclass(frozen=True)
class SourceRows:
    """What a batch has read from one source partition."""

    rows: pa.Table
    bad: pa.Table
    """The records that cannot be decoded, as they were read, with the column `reason`."""
    stream_time: int
    """The highest time that the partition has reached, for the metadata of the committed offset."""
    source_times: Mapping[int, int] = field(default_factory=dict)
    """Stream times by number of source partition, also of those that a parcel has told of without a row."""


def schema_of(source: SourcePlan) -> pa.Schema:
    """The schema of the rows that are read from this source."""
    if not source.is_table:
        return stream_schema(source.columns)
    return table_schema(source.columns, source.key, with_old=source.has_old)


def read_rows(source: SourcePlan, records: pa.Table, *, stream_time: int, number: int, order: int = 0) -> SourceRows:
    """The rows of these records, which have the columns of `ottla.pipeline.decoding` with headers, in offset order.

    `stream_time` is the one that the batch before has returned, `number` is that of the source partition, and `order`
    is the place of the first row.
    """
    if source.holds == PARCELS:
        return _read_parcels(records, stream_time, order, schema_of(source))
    records = records.combine_chunks()
    reasons: dict[int, str] = {}
    columns = _decode(source, records, reasons)
    times = _times(source, columns, records, reasons)
    rows = pa.table(
        {
            **columns,
            ORDER: pa.array(np.arange(order, order + records.num_rows, dtype=np.int64)),
            TIMESTAMP: pa.array(times),
            STREAM_TIME: pa.array(times),
            SOURCE: pa.repeat(pa.scalar(number, pa.int32()), records.num_rows),
            HEADERS: records["headers"] if "headers" in records.column_names else pa.nulls(len(times), HEADERS_TYPE),
            TOPIC: records["topic"],
            PARTITION: records["partition"],
            OFFSET: records["offset"],
            **({DELETED: pc.is_null(records["value"])} if source.is_table else {}),
        },
        schema=schema_of(source),
    )
    bad = _bad_records(records, reasons)
    if reasons:
        rows = rows.filter(pa.array([at not in reasons for at in range(records.num_rows)], pa.bool_()))
    highest = np.maximum.accumulate(np.maximum(rows[TIMESTAMP].to_numpy(), stream_time))
    rows = rows.set_column(rows.schema.get_field_index(STREAM_TIME), HIDDEN.field(STREAM_TIME), pa.array(highest))
    reached = int(highest[-1]) if len(highest) else stream_time
    return SourceRows(rows, bad, reached, {number: reached} if reached != NO_TIME else {})


def _decode(source: SourcePlan, records: pa.Table, reasons: dict[int, str]) -> dict[str, Any]:
    """The user's columns by name. Adds a reason for each record that cannot be decoded."""
    columns: dict[str, Any] = {}
    values = [each.name for each in value_fields(source.columns, source.key)]
    for part, form, names in (
        ("key", source.key_format, source.key),
        ("value", source.value_format, values),
    ):
        found, bad = formats.decode_column(form, _one_array(records[part]))
        for at, reason in bad.items():
            reasons[at] = f"{reasons[at]}; {part}: {reason}" if at in reasons else f"{part}: {reason}"
        if pa.types.is_struct(found.type):
            columns |= {name: pc.struct_field(found, name) for name in names}
        else:
            columns |= dict.fromkeys(names, found)
    return {each.name: columns[each.name].cast(each.type) for each in source.columns}


def _times(source: SourcePlan, columns: Mapping[str, Any], records: pa.Table, reasons: dict[int, str]) -> Any:
    """The time of each row in milliseconds, as a numpy array. A row without one is bad; a deletion has the time of its
    record."""
    stamps = _one_array(records["timestamp"]).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    if source.time is not None:
        column = columns[source.time]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        is_deletion = pc.is_null(_one_array(records["value"]))
        stamps = pc.if_else(is_deletion, stamps, column.cast(pa.int64()))
    what = "timestamp" if source.time is None else f"time column {source.time!r}"
    for at in np.flatnonzero(pc.less(pc.fill_null(stamps, -1), 0).to_numpy(zero_copy_only=False)).tolist():
        found = stamps[at].as_py()
        reasons.setdefault(at, f"{what} is null" if found is None else f"{what} is {found}, before the epoch")
    return pc.fill_null(stamps, 0).to_numpy(zero_copy_only=False)


def _read_parcels(records: pa.Table, stream_time: int, order: int, schema: pa.Schema) -> SourceRows:
    """Rows of a repartition topic. They keep the times that they had before the exchange."""
    rows, times = parcels.unpack(records["value"].to_pylist(), schema)
    places = pa.array(np.arange(order, order + rows.num_rows, dtype=np.int64))
    rows = rows.set_column(rows.schema.get_field_index(ORDER), HIDDEN.field(ORDER), places)
    return SourceRows(rows, _bad_records(records, {}), stream_time, times)


def _bad_records(records: pa.Table, reasons: Mapping[int, str]) -> pa.Table:
    places = sorted(reasons)
    bad = records.take(pa.array(places, pa.int64()))
    return bad.append_column(REASON, pa.array([reasons[at] for at in places], pa.string()))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
