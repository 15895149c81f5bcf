"""Aggregates and reduces with functions of the user: row by row, in the order of the rows.

A value in the store has the result's columns and `_timestamp`, as in `aggregates.py`. There is one change for each key
and batch. A function that returns None deletes the key, as in Kafka Streams.

A row whose function fails, or returns what does not fit the result's columns, is handled by `KernelContext.on_error`.
The value is then what the rows before it have made of it, even if the function had already changed it in place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.streams.errors import TopologyError
from ottla.streams.graph import PythonAggregate, Reduce
from ottla.streams.kernels.closing import DEFAULT_RETENTION_MS, WindowLife, Windows
from ottla.streams.kernels.grouping import as_array
from ottla.streams.kernels.kernel import KernelContext, Row, StoreSpec
from ottla.streams.kernels.partial import drop_null_keys
from ottla.streams.kernels.python_rows import Failures, to_dicts
from ottla.streams.kernels.versions import drop_null_values
from ottla.streams.kernels.windowed import WindowTable, assign_windows, last_order
from ottla.streams.rows import DELETED, HIDDEN, OLD, STREAM_TIME, TIMESTAMP, table_schema, value_fields
from ottla.streams.state.keys import encode_keys, window_key
from ottla.streams.state.store import Store
from ottla.streams.state.values import RowCodec
from ottla.streams.windows import Window

Value = Row | None
Apply = Callable[[Value, int], Value]
"""Changes a value by the row with this number."""


class RowFunctions:
    """The functions of an aggregate of the user, or of a reduce, in one form."""

    def __init__(self, aggregation: PythonAggregate | Reduce, key: Sequence[str], results: Sequence[pa.Field]) -> None:
        self._aggregation = aggregation
        self._key = tuple(key)
        self._results = [each.name for each in results]

    def add(self, value: Value, row: Row) -> Any:
        if isinstance(self._aggregation, PythonAggregate):
            return self._aggregation.add(self._aggregation.zero() if value is None else value, row)
        if value is None:
            return {name: row[name] for name in self._results}
        return self._take(self._aggregation.function(self._complete(value, row), row))

    def subtract(self, value: Value, row: Row) -> Any:
        """Take a row away from a value, or from nothing, which stays nothing."""
        if value is None:
            return None
        function = self._aggregation.subtract
        assert function is not None, "whoever builds a grouped table checks that there is a function"
        if isinstance(self._aggregation, PythonAggregate):
            return function(value, row)
        return self._take(function(self._complete(value, row), row))

    def merge(self, left: Value, right: Value, key: Row) -> Any:
        """Join the values of two sessions, the earlier one first."""
        if left is None or right is None:
            return right if left is None else left
        if isinstance(self._aggregation, PythonAggregate):
            assert self._aggregation.merge is not None, "whoever builds session windows checks that there is a function"
            return self._aggregation.merge(left, right)
        return self._take(self._aggregation.function(self._complete(left, key), self._complete(right, key)))

    def _complete(self, value: Row, row: Row) -> Row:
        """The value of a reduce as a row, with the columns of the key."""
        return {name: row[name] for name in self._key} | value

    def _take(self, row: Any) -> Any:
        return {name: row.get(name) for name in self._results} if isinstance(row, dict) else row


@dataclass
class Folded:
    """A key of a batch, and what the batch has made of its value."""

    key: bytes
    before: bytes | None
    value: Value
    time: int
    """The highest time of the rows in the value."""
    steps: list[int] = field(default_factory=list)
    """The steps that have changed it, in order."""
    after: bytes | None = None

    @property
    def is_change(self) -> bool:
        return bool(self.steps) and not (self.before is None and self.after is None)


@dataclass(frozen=True)
class Steps:
    """What is to be done in one batch: each step changes the value of a key by a row."""

    keys: Sequence[bytes]
    rows: Sequence[int]
    times: Sequence[int]
    """The time of each row."""
    apply: Apply
    failures: Failures


class PythonState:
    """Values of functions in a store. `codec` reads and writes them."""

    def __init__(self, columns: pa.Schema, key: Sequence[str]) -> None:
        self._results = value_fields(columns, tuple(key))
        self._names = {each.name for each in self._results}
        self.codec = RowCodec(pa.schema([*self._results, pa.field(TIMESTAMP, pa.int64())]))
        self.schema = table_schema(columns, tuple(key), with_old=True)

    def fold(self, steps: Steps, store: Store) -> list[Folded]:
        """Take all steps and write the store. Returns what has changed, in the order of the last steps."""
        unique = list(dict.fromkeys(steps.keys))
        found = {key: self._load(key, value) for key, value in zip(unique, store.get_many(unique), strict=True)}
        for step, (key, row) in enumerate(zip(steps.keys, steps.rows, strict=True)):
            folded = found[key]
            folded.steps.append(step)
            try:
                value = steps.apply(folded.value, row)
            except Exception:
                self._repeat(folded, steps)
                continue
            folded.time = steps.times[row] if folded.value is None else max(folded.time, steps.times[row])
            folded.value = value
        for folded in found.values():
            try:
                folded.after = self.encode(folded.value, folded.time)
            except (TypeError, ValueError):
                self._repeat(folded, steps)
        changes = [folded for folded in found.values() if folded.is_change]
        store.put_many(
            [each.key for each in changes], [each.after for each in changes], [each.time for each in changes]
        )
        return sorted(changes, key=lambda each: each.steps[-1])

    def _load(self, key: bytes, stored: bytes | None) -> Folded:
        if stored is None:
            return Folded(key, None, None, 0)
        value = self.codec.decode_row(stored)
        return Folded(key, stored, value, value.pop(TIMESTAMP) or 0)

    def decode(self, stored: bytes) -> Row:
        """The value as functions see it."""
        value = self.codec.decode_row(stored)
        del value[TIMESTAMP]
        return value

    def encode(self, value: Value, time: int) -> bytes | None:
        """The value as it is stored. TypeError or ValueError if it does not fit the columns."""
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TypeError(f"expected a dict with the columns {', '.join(sorted(self._names))}, got {value!r:.100}")
        unknown = [name for name in value if name not in self._names]
        if unknown:
            raise ValueError(f"unknown column {unknown[0]!r}: the columns are {', '.join(sorted(self._names))}")
        return self.codec.encode_row(value | {TIMESTAMP: time})

    def _repeat(self, folded: Folded, steps: Steps) -> None:
        """Take the steps of a key again, without those that fail or return what does not fit. Values are checked after
        each step only here: a function may fail because one before it has returned nonsense."""
        remaining = folded.steps
        while True:
            again = self._load(folded.key, folded.before)
            for place, step in enumerate(remaining):
                time = steps.times[steps.rows[step]]
                try:
                    value = steps.apply(again.value, steps.rows[step])
                    again.time = time if again.value is None else max(again.time, time)
                    again.after = self.encode(value, again.time)
                    again.value = value
                except Exception as error:
                    steps.failures.add(steps.rows[step], error)
                    remaining = remaining[:place] + remaining[place + 1 :]
                    break
            else:
                folded.value, folded.time, folded.after, folded.steps = again.value, again.time, again.after, remaining
                return

    def make_changes(self, changes: Sequence[Folded], rows: pa.Table) -> pa.Table:
        """Changes of the table. `rows` has the key's columns and the hidden ones of the row that caused each change."""
        before, after = [each.before for each in changes], [each.after for each in changes]
        return make_changes(self.schema, self.codec, rows, before, after, [each.time for each in changes])


def make_changes(
    schema: pa.Schema,
    codec: RowCodec,
    rows: pa.Table,
    before: Sequence[bytes | None],
    after: Sequence[bytes | None],
    times: Sequence[int],
) -> pa.Table:
    """Changes of a table from stored values. `rows` has the columns of the keys, and the hidden ones of the row that
    caused each change."""
    if not len(times):
        return schema.empty_table()
    values, stored = codec.decode(after), codec.decode(before)
    results = list(schema.field(OLD).type)
    columns: dict[str, Any] = {name: rows.column(name) for name in schema.names if name in rows.column_names}
    columns |= {each.name: values.column(each.name) for each in results}
    columns[TIMESTAMP] = pa.array(times, pa.int64())
    columns[DELETED] = pa.array([value is None for value in after])
    columns[OLD] = pa.StructArray.from_arrays(
        [as_array(stored.column(each.name)) for each in results],
        fields=results,
        mask=pa.array([value is None for value in before]),
    )
    return pa.table(columns, schema)


class PythonAggregateKernel:
    """Input: rows of a stream, or with `retracting` the rows of RetractionKernel. Output: changes with `_old`."""

    def __init__(
        self,
        label: str,
        store: str,
        columns_before: pa.Schema,
        columns: pa.Schema,
        key: Sequence[str],
        aggregation: PythonAggregate | Reduce,
        *,
        retracting: bool = False,
        value_names: Sequence[str] = (),
    ) -> None:
        """`columns_before` are those of the input, `columns` those of the result, both without ours. `value_names` are
        null in a row without a value, which is dropped."""
        if retracting and aggregation.subtract is None:
            raise TopologyError(f"{label}: a table's rows change, so its aggregate needs a subtract function")
        self.stores: Sequence[StoreSpec] = (StoreSpec(store),)
        self._label = label
        self._names = columns_before.names
        self._key = tuple(key)
        self._value_names = tuple(value_names)
        self._retracting = retracting
        self._functions = RowFunctions(aggregation, self._key, value_fields(columns, self._key))
        self._state = PythonState(columns, self._key)

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        rows = drop_null_values(inputs[0], self._value_names, self._label, context)
        rows = drop_null_keys(rows, self._key, self._label, context)
        keys = [key for key in encode_keys(rows, self._key) if key is not None]
        failures = Failures(self._label, rows, context)
        times = rows.column(TIMESTAMP).to_pylist()
        steps = Steps(keys, range(rows.num_rows), times, self._make_apply(rows), failures)
        changes = self._state.fold(steps, context.store(self.stores[0].name))
        failures.hand_over()
        causes = pa.array([each.steps[-1] for each in changes], pa.int64())
        return [self._state.make_changes(changes, rows.select([*self._key, *HIDDEN.names]).take(causes))]

    def _make_apply(self, rows: pa.Table) -> Apply:
        content = to_dicts(rows, self._names)
        functions = self._functions
        if not self._retracting:
            return lambda value, row: functions.add(value, content[row])
        olds: list[Value] = rows.column(OLD).to_pylist()
        deleted: list[bool] = rows.column(DELETED).to_pylist()

        def apply(value: Value, row: int) -> Value:
            old = olds[row]
            if old is not None:
                value = functions.subtract(value, {name: content[row][name] for name in self._key} | old)
            return value if deleted[row] else functions.add(value, content[row])

        return apply


class PythonWindowKernel:
    """Input: rows of a stream. Output: changes of a windowed table with `_old`, or one row for each closed window.

    Like WindowedAggregateKernel, with functions of the user. Late rows end here.
    """

    def __init__(
        self,
        label: str,
        store: str,
        columns_before: pa.Schema,
        columns: pa.Schema,
        key: Sequence[str],
        window: Window,
        aggregation: PythonAggregate | Reduce,
        *,
        emit: str = "update",
        retention_ms: int = DEFAULT_RETENTION_MS,
    ) -> None:
        """`columns` and `key` are those of the result, with the window's columns."""
        self._label = label
        self._names = columns_before.names
        self._window = window
        self._table = WindowTable(columns, key)
        self._functions = RowFunctions(aggregation, self._table.group_key, value_fields(columns, tuple(key)))
        self._state = PythonState(columns, key)
        self._life = WindowLife(store, window.grace_ms, emit == "final", retention_ms, window.close_idle_ms)
        self.stores: Sequence[StoreSpec] = self._life.specs
        self.close_idle_ms = window.close_idle_ms

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        windows = self._life.begin(inputs[0], context)
        changes = self._fold(drop_null_keys(inputs[0], self._table.group_key, self._label, context), windows, context)
        if self._life.is_final:
            changes = self._table.close_windows(windows, self._state.codec, self._window.size_ms, last_order(inputs[0]))
        windows.expire()
        return [changes]

    def _fold(self, rows: pa.Table, windows: Windows, context: KernelContext) -> pa.Table:
        times, stream_times = (as_array(rows.column(name)).to_numpy() for name in (TIMESTAMP, STREAM_TIME))
        assigned = assign_windows(self._window, times, stream_times, windows.ended_before)
        if assigned.is_late.any():
            context.late.append((self._label, rows.filter(pa.array(assigned.is_late))))
        row_keys = [key for key in encode_keys(rows, self._table.group_key) if key is not None]
        pairs = zip(assigned.rows.tolist(), assigned.starts.tolist(), strict=True)
        keys = [window_key(row_keys[row], start) for row, start in pairs]
        content, failures = to_dicts(rows, self._names), Failures(self._label, rows, context)
        add = self._functions.add
        steps = Steps(
            keys, assigned.rows.tolist(), times.tolist(), lambda value, row: add(value, content[row]), failures
        )
        changes = self._state.fold(steps, windows.store)
        failures.hand_over()
        last = np.array([each.steps[-1] for each in changes], np.int64)
        starts = assigned.starts[last]
        ends = starts + self._window.size_ms
        for each, end in zip(changes, ends.tolist(), strict=True):
            if each.before is None:
                windows.add([end], [each.key])
            elif each.after is None:
                windows.remove(end, each.key)
        causes = rows.select([*self._table.group_key, *HIDDEN.names]).take(pa.array(assigned.rows[last]))
        return self._state.make_changes(changes, self._table.set_window(causes, starts, ends))
