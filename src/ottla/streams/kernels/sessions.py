"""Aggregates over session windows: rows of a key that are at most a gap apart are one session.

`window_start` and `window_end` are the times of the first and of the last row of a session, both inclusive, and
`window_end` is the time of the emitted row, as in Kafka Streams. A row that makes one session of several deletes those:
the table has a change with `_deleted` for each.

A row is late if the session it would make ended longer ago than the gap and the grace period, by the row's STREAM_TIME:
Kafka's rule. So a row that is old, but lies in a session that goes on, is not late. With emit="final" a session that is
closed by the row's STREAM_TIME is no longer there for it: a row that would lengthen it begins a new one (Kafka Streams
emits the longer session as well then). As long as rows come at most the grace period out of order, the result does not
depend on the order in which rows of different source partitions arrive.

The store has the keys of `session_key`, and the values of `aggregates.py` or `python_aggregates.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import pyarrow as pa

from ottla.streams.graph import Aggregation, BuiltInAggregate, PythonAggregate, Reduce
from ottla.streams.kernels.aggregates import AccumulatorState
from ottla.streams.kernels.closing import DEFAULT_RETENTION_MS, WindowLife, Windows
from ottla.streams.kernels.grouping import Groups, Numbers, as_array, group_by_keys
from ottla.streams.kernels.kernel import KernelContext, Row, StoreSpec
from ottla.streams.kernels.partial import drop_null_keys
from ottla.streams.kernels.python_aggregates import PythonState, RowFunctions, make_changes
from ottla.streams.kernels.python_rows import Failures, to_dicts
from ottla.streams.kernels.session_index import KeySessions, SessionIndex
from ottla.streams.kernels.windowed import WindowTable, group_key, last_order
from ottla.streams.rows import HIDDEN, STREAM_TIME, TIMESTAMP, value_fields
from ottla.streams.state.keys import encode_keys, session_key, split_session_key
from ottla.streams.windows import Window


class SessionKernel:
    """Input: rows of a stream. Output: changes of a windowed table with `_old`, or one row for each closed session."""

    def __init__(
        self,
        label: str,
        store: str,
        columns_before: pa.Schema,
        columns: pa.Schema,
        key: Sequence[str],
        window: Window,
        aggregation: Aggregation,
        *,
        emit: str = "update",
        retention_ms: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """`columns` and `key` are those of the result, with the window's columns."""
        self._label = label
        self._gap_ms = window.size_ms
        self._table = WindowTable(columns, key)
        self._values = _make_values(aggregation, columns_before, columns, key)
        open_ms = window.size_ms + window.grace_ms + 1
        self._life = WindowLife(store, open_ms, emit == "final", retention_ms, window.close_idle_ms)
        self._visible_ms = self._life.open_ms if self._life.is_final else self._life.keep_ms
        self.stores: Sequence[StoreSpec] = self._life.specs
        self.close_idle_ms = window.close_idle_ms

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        windows = self._life.begin(inputs[0], context)
        index = SessionIndex(context.store(self.stores[1].name))
        rows = drop_null_keys(inputs[0], self._table.group_key, self._label, context)
        changes = self._table.schema.empty_table()
        if rows.num_rows:
            changes = self._add_rows(rows, windows, index, context)
        if self._life.is_final:
            changes = self._close(windows, last_order(inputs[0]))
        expired = windows.expire()
        if expired:
            index.forget(expired)
        return [changes]

    def _add_rows(self, rows: pa.Table, windows: Windows, index: SessionIndex, context: KernelContext) -> pa.Table:
        groups, keys = group_by_keys([key for key in encode_keys(rows, self._table.group_key) if key is not None])
        times = as_array(rows.column(TIMESTAMP)).to_numpy()
        by_key = index.load(_find_spans(groups, keys, times), self._gap_ms)
        stored = [session for each in by_key for session in each.live]
        stored_keys = [session.content for session in stored]
        before = dict(zip(stored_keys, windows.store.get_many(stored_keys), strict=True))
        batch = self._values.begin(rows, list(before.values()))
        for number, session in enumerate(stored):
            session.content = batch.take_stored(number)
        failures = Failures(self._label, rows, context)
        late = self._follow_rows(rows, groups, by_key, windows.ended_before, batch, failures)
        failures.hand_over()
        if late:
            context.late.append((self._label, rows.take(pa.array(sorted(late)))))
        changes = _find_changes(by_key, before, batch)
        self._write(changes, windows)
        index.save(each for each in by_key if each.is_changed)
        return self._make_rows(changes, rows)

    def _follow_rows(
        self,
        rows: pa.Table,
        groups: Groups,
        by_key: Sequence[KeySessions],
        ended_before: int,
        batch: "_Batch",
        failures: Failures,
    ) -> list[int]:
        """Add the rows to the sessions of their keys. Returns those that are late."""
        times, stream_times = (as_array(rows.column(name)).to_numpy() for name in (TIMESTAMP, STREAM_TIME))
        order, ends = self._find_runs(groups, times, stream_times, batch)
        numbers, time_list, stream_list = groups.numbers.tolist(), times.tolist(), stream_times.tolist()
        late, place = [], 0
        while place < len(order):
            row = int(order[place])
            sessions, time, stream_time = by_key[numbers[row]], time_list[row], stream_list[row]
            merged = sessions.find(time, self._gap_ms, max(ended_before, stream_time - self._visible_ms + 1))
            end = max(time, merged[-1].end) if merged else time
            place += 1
            if end < ended_before or end + self._life.open_ms <= stream_time:
                late.append(row)
                continue
            try:
                content = batch.extend([each.content for each in merged], row, end)
            except Exception as error:
                failures.add(row, error)
                continue
            sessions.replace(merged, time, content, row)
            run_end = int(ends[place - 1])
            if place < run_end and sessions.has_one_new:
                rest = order[place:run_end]
                sessions.lengthen(
                    time_list[rest[-1]], batch.extend_by_rows(sessions.live[0].content, rest), int(rest[-1])
                )
                place = run_end
        return late

    def _find_runs(
        self, groups: Groups, times: Numbers, stream_times: Numbers, batch: "_Batch"
    ) -> tuple[Numbers, Numbers]:
        """The order in which rows are added, and for each place in it where its run ends. Rows of a run have the same
        key and come one after the other: if a row was added to a session, the next one is not late and belongs to the
        same session."""
        if not batch.takes_runs:
            return np.arange(len(times)), np.arange(1, len(times) + 1)
        order, _ = groups.members
        keys, times, stream_times = groups.numbers[order], times[order], stream_times[order]
        before, after, now = times[:-1], times[1:], stream_times[1:]
        follows = (keys[1:] == keys[:-1]) & (after >= before) & (after - before <= self._gap_ms)
        follows &= (now < after + self._life.open_ms) & (now < before + self._visible_ms)
        run_ends = np.append(np.flatnonzero(~follows) + 1, len(times))
        return order, np.repeat(run_ends, np.diff(run_ends, prepend=0))

    def _write(self, changes: Sequence["_Change"], windows: Windows) -> None:
        for each in changes:
            if each.after is None:
                windows.remove(each.end, each.key)
            else:
                windows.store.put(each.key, each.after, each.end)
        made = [each for each in changes if each.before is None and each.after is not None]
        windows.add([each.end for each in made], [each.key for each in made])

    def _make_rows(self, changes: Sequence["_Change"], rows: pa.Table) -> pa.Table:
        if not changes:
            return self._table.schema.empty_table()
        causes = rows.select([*self._table.group_key, *HIDDEN.names]).take(pa.array([each.row for each in changes]))
        starts, ends = (np.array(times) for times in zip(*((each.start, each.end) for each in changes), strict=True))
        causes = self._table.set_window(causes, starts, ends)
        before, after = [each.before for each in changes], [each.after for each in changes]
        return make_changes(self._table.schema, self._values.codec, causes, before, after, ends.tolist())

    def _close(self, windows: Windows, order: int) -> pa.Table:
        closed = windows.close()
        bounds = [(key, start, end) for key, end, start in map(split_session_key, closed)]
        values = self._values.codec.decode(windows.store.get_many(closed))
        return self._table.make_final(bounds, values, windows.time, order)


class _Change(NamedTuple):
    """What a batch has done to one session."""

    key: bytes
    """That of the session in the store."""
    start: int
    end: int
    before: bytes | None
    after: bytes | None
    row: int


def _find_spans(groups: Groups, keys: Sequence[bytes], times: Numbers) -> dict[bytes, tuple[int, int]]:
    """The first and the last time of each key."""
    order, starts = groups.members
    spans = (extreme.reduceat(times[order], starts[:-1]).tolist() for extreme in (np.minimum, np.maximum))
    return dict(zip(keys, zip(*spans, strict=True), strict=True))


def _find_changes(keys: Sequence[KeySessions], before: Mapping[bytes, bytes | None], batch: "_Batch") -> list[_Change]:
    """Deleted and changed sessions, in the order of the rows that have caused it, deleted ones first. A session that
    was deleted and made again is one change."""
    deleted = [
        _Change(key := session_key(each.key, gone.end, gone.start), gone.start, gone.end, before[key], None, row)
        for each in keys
        for gone, row in each.removed
    ]
    changed = [(each.key, session) for each in keys for session in each.live if session.last_row is not None]
    values = batch.finish([session.content for _, session in changed]) if changed else []
    made = [
        _Change(
            stored := session_key(key, session.end, session.start),
            session.start,
            session.end,
            before.get(stored),
            value,
            session.last_row or 0,
        )
        for (key, session), value in zip(changed, values, strict=True)
    ]
    there = {each.key for each in made} if deleted else ()
    gone = [each for each in deleted if each.key not in there]
    return sorted([*gone, *made], key=lambda each: each.row)


class _Batch(Protocol):
    """The values of sessions during one batch. A session's content is whatever its value can be made from."""

    def take_stored(self, number: int) -> Any:
        """The content of a session that was there before."""

    takes_runs: bool
    """Rows of different keys may be added in any order, and those of one session many at once."""

    def extend(self, contents: list[Any], row: int, end: int) -> Any:
        """The content of one session made from these, by their end, and a row. None if there is no session then."""

    def extend_by_rows(self, content: Any, rows: Numbers) -> Any:
        """The content of a session with these rows, if the batch takes runs."""

    def finish(self, contents: Sequence[Any]) -> list[bytes]:
        """Values as they are stored."""


class _BuiltInValues:
    """A session's content is the list of its parts: numbers of stored sessions, then of rows. So values are computed
    for all sessions at once, in the order in which their parts were merged."""

    def __init__(self, columns: pa.Schema, key: Sequence[str], aggregates: Sequence[BuiltInAggregate]) -> None:
        self._state = AccumulatorState(columns, key, aggregates, retracting=False)
        self.codec = self._state.codec

    def begin(self, rows: pa.Table, stored: Sequence[bytes | None]) -> _Batch:
        return _BuiltInBatch(self._state, rows, stored)


class _BuiltInBatch:
    takes_runs = True

    def __init__(self, state: AccumulatorState, rows: pa.Table, stored: Sequence[bytes | None]) -> None:
        self._state = state
        self._rows = rows
        self._stored = stored

    def take_stored(self, number: int) -> list[int]:
        return [number]

    def extend(self, contents: list[list[int]], row: int, end: int) -> list[int]:
        # The first list grows, so that a row that lengthens a long session costs no more than any other.
        parts = contents[0] if contents else []
        for others in contents[1:]:
            parts += others
        parts.append(len(self._stored) + row)
        return parts

    def extend_by_rows(self, content: list[int], rows: Numbers) -> list[int]:
        content += (rows + len(self._stored)).tolist()
        return content

    def finish(self, contents: Sequence[list[int]]) -> list[bytes]:
        before, alone = self._state.codec.decode(self._stored), self._state.collect(self._rows)
        parts = pa.array([part for each in contents for part in each], pa.int64())
        accumulators = {
            name: pa.concat_arrays([as_array(before.column(name)), column]).take(parts)
            for name, column in alone.items()
        }
        numbers = np.repeat(np.arange(len(contents)), [len(each) for each in contents])
        return self._state.codec.encode(self._state.combine(accumulators, Groups(numbers, len(contents))))


class _PythonValues:
    """A session's content is its value as it is stored. It is decoded for each row, so that a function that changes a
    value in place and then fails leaves no trace."""

    def __init__(
        self,
        columns_before: pa.Schema,
        columns: pa.Schema,
        key: Sequence[str],
        aggregation: PythonAggregate | Reduce,
    ) -> None:
        self._names = columns_before.names
        self._functions = RowFunctions(aggregation, group_key(key), value_fields(columns, tuple(key)))
        self._state = PythonState(columns, key)
        self.codec = self._state.codec

    def begin(self, rows: pa.Table, stored: Sequence[bytes | None]) -> _Batch:
        return _PythonBatch(self._state, self._functions, to_dicts(rows, self._names), stored)


class _PythonBatch:
    takes_runs = False

    def __init__(
        self, state: PythonState, functions: RowFunctions, rows: Sequence[Row], stored: Sequence[bytes | None]
    ) -> None:
        self._state = state
        self._functions = functions
        self._rows = rows
        self._stored = stored

    def take_stored(self, number: int) -> bytes | None:
        return self._stored[number]

    def extend(self, contents: list[bytes], row: int, end: int) -> bytes | None:
        value = None
        for content in contents:
            value = self._functions.merge(value, self._state.decode(content), self._rows[row])
        return self._state.encode(self._functions.add(value, self._rows[row]), end)

    def extend_by_rows(self, content: bytes, rows: Numbers) -> NoReturn:
        raise AssertionError("functions of the user get rows in their order")

    def finish(self, contents: Sequence[bytes]) -> list[bytes]:
        return list(contents)


def _make_values(
    aggregation: Aggregation, columns_before: pa.Schema, columns: pa.Schema, key: Sequence[str]
) -> _BuiltInValues | _PythonValues:
    if isinstance(aggregation, tuple):
        return _BuiltInValues(columns, key, aggregation)
    return _PythonValues(columns_before, columns, key, aggregation)
