"""Aggregates over tumbling and hopping windows.

A row is late for a window if the window's end and the grace period are not after the row's STREAM_TIME: exactly Kafka's
rule, with the time of the row's own source partition. A row that no window takes is handed to `KernelContext.late`. A
row of a hopping window that only some windows take is not late.

The store has the keys of `window_key` and the values of `aggregates.py`. Its windows are deleted once the closing time
(`closing.py`) is past their retention. Nothing is emitted for that, as in Kafka Streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.graph import BuiltInAggregate
from ottla.streams.kernels.accumulators import make_accumulators
from ottla.streams.kernels.aggregates import AccumulatorState
from ottla.streams.kernels.closing import DEFAULT_RETENTION_MS, WindowLife, Windows
from ottla.streams.kernels.grouping import Numbers, as_array, group_by_keys
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.partial import collect_partials, drop_null_keys, partial_columns
from ottla.streams.rows import (
    DELETED,
    HIDDEN,
    OLD,
    ORDER,
    STREAM_TIME,
    TIMESTAMP,
    stream_schema,
    table_schema,
    value_fields,
)
from ottla.streams.state.keys import decode_keys, encode_keys, split_window_key, window_key
from ottla.streams.state.values import RowCodec
from ottla.streams.windows import END, START, Window

START_FIELD = pa.field(START, pa.int64())
"""The start of the window in rows between two steps, in milliseconds."""


@dataclass(frozen=True)
class Assigned:
    """Which windows take which rows."""

    rows: Numbers
    """A row for each window that takes it, in the order of rows."""
    starts: Numbers
    is_late: np.ndarray[Any, np.dtype[np.bool_]]
    """For each row: no window takes it."""


def assign_windows(window: Window, times: Numbers, stream_times: Numbers, ended_before: int = 0) -> Assigned:
    """No window begins before 1970, as in Kafka Streams. Windows that end before `ended_before` take no row."""
    newest = times - times % window.advance_ms
    backwards = np.arange(-(-window.size_ms // window.advance_ms)) * window.advance_ms
    starts = newest[:, np.newaxis] - backwards[np.newaxis, ::-1]
    ends = starts + window.size_ms
    takes = (starts >= 0) & (ends > times[:, np.newaxis]) & (ends + window.grace_ms > stream_times[:, np.newaxis])
    takes &= ends >= ended_before
    rows, columns = np.nonzero(takes)
    return Assigned(rows, starts[rows, columns], np.bincount(rows, minlength=len(times)) == 0)


class PartialWindowAggregate:
    """Input: rows of a stream. Output: partial rows by key and window, whose columns are `columns`.

    Late rows end here, because lateness depends on the row alone. Runs before an exchange, or directly before
    WindowedAggregateKernel if the input is already partitioned by the key.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(
        self,
        label: str,
        columns: pa.Schema,
        key: Sequence[str],
        window: Window,
        aggregates: Sequence[BuiltInAggregate],
    ) -> None:
        """`columns` are those of the input, without ours. `key` may contain the window's columns, which are ignored."""
        self._label = label
        self._key = group_key(key)
        self._window = window
        self._accumulators = make_accumulators(aggregates)
        arguments = [each.column for each in aggregates if each.column is not None]
        self._needed = list(dict.fromkeys((*self._key, *arguments, *HIDDEN.names)))
        self.columns = partial_columns([*(columns.field(name) for name in self._key), START_FIELD], self._accumulators)

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        rows = drop_null_keys(inputs[0], self._key, self._label, context)
        slices = max(1, _ASSIGNED_MAX * self._window.advance_ms // self._window.size_ms)
        found = [stream_schema(self.columns).empty_table()]
        for start in range(0, rows.num_rows, slices):
            assigned = take_windows(self._label, rows.slice(start, slices), self._window, context, self._needed)
            if assigned.num_rows:
                found.append(collect_partials(assigned, (*self._key, START), self._accumulators))
        return [pa.concat_tables(found)]


_ASSIGNED_MAX = 4_000_000
"""Rows times windows that are held in memory at once."""


def group_key(key: Sequence[str]) -> tuple[str, ...]:
    """The columns of a windowed table's key without those of the window."""
    return tuple(name for name in key if name not in (START, END))


def take_windows(label: str, rows: pa.Table, window: Window, context: KernelContext, needed: Sequence[str]) -> pa.Table:
    """The needed columns of the rows once for each window that takes them, with its start. Hands over late rows."""
    times, stream_times = (as_array(rows.column(name)).to_numpy() for name in (TIMESTAMP, STREAM_TIME))
    assigned = assign_windows(window, times, stream_times)
    if assigned.is_late.any():
        context.late.append((label, rows.filter(pa.array(assigned.is_late))))
    kept = rows.select(needed)
    if len(assigned.rows) != rows.num_rows or window.size_ms != window.advance_ms:
        kept = kept.take(pa.array(assigned.rows))
    return kept.append_column(START_FIELD, pa.array(assigned.starts))


class WindowedAggregateKernel:
    """Input: partial rows from PartialWindowAggregate.
    Output: changes of a table with `columns`, whose key has the window's start and end, with `_old`.

    With emit="final" there is one row for each window, once it is closed, with the highest time of its rows. A window
    is closed when its end and the grace period are not after the closing time (`closing.py`).

    A partial row for a window that is closed (with "update": deleted) comes from a source partition that was not heard
    of before, or was idle. It changes nothing and is handed to `KernelContext.late` as it is.
    """

    def __init__(
        self,
        label: str,
        store: str,
        columns: pa.Schema,
        key: Sequence[str],
        window: Window,
        aggregates: Sequence[BuiltInAggregate],
        *,
        emit: str = "update",
        retention_ms: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """`columns` and `key` are those of the result, with the window's columns. `retention_ms` is how long after its
        end a window stays in the store, if that is longer than the grace period."""
        self._label = label
        self._window = window
        self._table = WindowTable(columns, key)
        self._state = AccumulatorState(columns, key, aggregates, retracting=False)
        self._life = WindowLife(store, window.grace_ms, emit == "final", retention_ms, window.close_idle_ms)
        self.stores: Sequence[StoreSpec] = self._life.specs
        self.close_idle_ms = window.close_idle_ms

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        windows = self._life.begin(inputs[0], context)
        changes = self._merge(self._drop_ended(inputs[0], windows, context), windows)
        if self._life.is_final:
            changes = self._table.close_windows(windows, self._state.codec, self._window.size_ms, last_order(inputs[0]))
        windows.expire()
        return [changes]

    def _drop_ended(self, rows: pa.Table, windows: Windows, context: KernelContext) -> pa.Table:
        ends = pc.add(rows.column(START), self._window.size_ms)
        has_ended = pc.less(ends, windows.ended_before)
        if not pc.any(has_ended).as_py():
            return rows
        context.late.append((self._label, rows.filter(has_ended)))
        return rows.filter(pc.invert(has_ended))

    def _merge(self, rows: pa.Table, windows: Windows) -> pa.Table:
        if not rows.num_rows:
            return self._state.schema.empty_table()
        starts = as_array(rows.column(START)).to_numpy()
        ends = starts + self._window.size_ms
        pairs = zip(encode_keys(rows, self._table.group_key), starts.tolist(), strict=True)
        groups, keys = group_by_keys([window_key(key, start) for key, start in pairs if key is not None])
        merged = self._state.merge(self._table.set_window(rows, starts, ends), groups, keys, windows.store)
        new = np.flatnonzero(merged.is_new)
        windows.add(ends[groups.first[new]].tolist(), [keys[number] for number in new.tolist()])
        return merged.changes


class WindowTable:
    """The form of a windowed table: its key has the window's start and end as timestamps."""

    def __init__(self, columns: pa.Schema, key: Sequence[str]) -> None:
        self.columns = columns
        self.key = tuple(key)
        self.group_key = group_key(key)
        self.schema = table_schema(columns, self.key, with_old=True)

    def set_window(self, rows: pa.Table, starts: Numbers, ends: Numbers) -> pa.Table:
        """The rows with the window's columns as timestamps."""
        if START in rows.column_names:
            rows = rows.drop_columns([START])
        for name, times in ((START, starts), (END, ends)):
            rows = rows.append_column(self.columns.field(name), self._as_timestamps(name, times))
        return rows

    def close_windows(self, windows: Windows, codec: RowCodec, size_ms: int, order: int) -> pa.Table:
        """Rows for the windows that this batch has closed."""
        closed = windows.close()
        values = codec.decode(windows.store.get_many(closed))
        bounds = [(key, start, start + size_ms) for key, start in map(split_window_key, closed)]
        return self.make_final(bounds, values, windows.time, order)

    def make_final(
        self, windows: Sequence[tuple[bytes, int, int]], values: pa.Table, time: int, order: int
    ) -> pa.Table:
        """Rows for windows that are closed: their keys, starts and ends, and their values with TIMESTAMP.

        Time has caused them, so they have the closing time and no source.
        """
        if not windows:
            return self.schema.empty_table()
        keys, starts, ends = zip(*windows, strict=True)
        found = decode_keys(keys, pa.schema([self.columns.field(name) for name in self.group_key]))
        columns: dict[str, Any] = {name: found.column(name) for name in self.group_key}
        columns |= {name: self._as_timestamps(name, np.array(times)) for name, times in ((START, starts), (END, ends))}
        columns |= {field.name: values.column(field.name) for field in value_fields(self.columns, self.key)}
        columns |= {field.name: pa.nulls(len(windows), field.type) for field in HIDDEN}
        columns[ORDER] = pa.repeat(pa.scalar(order, pa.int64()), len(windows))
        columns[TIMESTAMP] = values.column(TIMESTAMP)
        columns[STREAM_TIME] = pa.repeat(pa.scalar(time, pa.int64()), len(windows))
        columns[DELETED] = pa.repeat(pa.scalar(False), len(windows))
        columns[OLD] = pa.nulls(len(windows), self.schema.field(OLD).type)
        return pa.table(columns, self.schema)

    def _as_timestamps(self, name: str, times: Numbers) -> pa.Array:
        kind = self.columns.field(name).type
        return pa.array(times).cast(pa.timestamp("ms", kind.tz)).cast(kind)


def last_order(rows: pa.Table) -> int:
    """The place of rows that time has caused: behind all rows of the batch."""
    return pc.max(rows.column(ORDER)).as_py() or 0
