"""Runs a Processor of the user (`processors.py`): its rows and timers in order, with the state of their keys.

Stores: NAME has the state of each key (see `key_state.py`) under the canonical key. NAME-timers has the timers of all
keys by time, and stream times: time (8 bytes), escaped key, name -> {}. The empty name stands for "look for what has
expired". The state of all keys that a batch can touch is read in one round trip, timers that may fire in another.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, NoReturn

import pyarrow as pa

from ottla.streams import later
from ottla.streams.errors import FunctionFailed
from ottla.streams.kernels.kernel import FailedRows, KernelContext, Row, StoreSpec
from ottla.streams.kernels.key_state import KeyState, Present, bind_states
from ottla.streams.kernels.python_rows import to_columns, to_dicts
from ottla.streams.kernels.stream_times import FIRST_KEY, StreamTimes
from ottla.streams.kernels.tables import NULL_KEY
from ottla.streams.processors import Emit, Headers, Result, Time, Timer, bind, states_of, to_datetime, to_ms
from ottla.streams.rows import (
    HEADERS,
    HIDDEN,
    OFFSET,
    ORDER,
    PARTITION,
    SOURCE,
    STREAM_TIME,
    TIMESTAMP,
    TOPIC,
    stream_schema,
)
from ottla.streams.state.json_values import Convert, make_writer
from ottla.streams.state.keys import decode_keys, decode_time, encode_keys, encode_time, prefix_of, split_window_key
from ottla.streams.state.store import Store

CLEANUP = ""
"""The name of the timer that looks for what has expired."""

_TIME_BYTES = len(encode_time(0))


class ProcessKernel:
    """Input: rows of a stream. Outputs: the main one, then the further ones in the order of `outputs`. Rows without a
    key are dropped."""

    def __init__(
        self,
        label: str,
        name: str,
        processor: type,
        columns_before: pa.Schema,
        key: Sequence[str],
        columns: pa.Schema,
        outputs: Mapping[str, pa.Schema] | None = None,
        *,
        close_idle_ms: int | None = None,
    ) -> None:
        self.stores: Sequence[StoreSpec] = (StoreSpec(name), StoreSpec(f"{name}-timers"))
        self.label = label
        self.processor = processor
        self.columns_before = columns_before
        self.key = tuple(key)
        self.close_idle_ms = close_idle_ms
        self.outputs: dict[str | None, pa.Schema] = {None: columns}
        for output, schema in (outputs or {}).items():
            self.outputs[output] = schema

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        return _ProcessorBatch(self, inputs[0], context).run()


class _Output:
    """The rows of one output during a batch."""

    def __init__(self, columns: pa.Schema, key: Sequence[str]) -> None:
        self._columns = columns
        self._key = key
        self._writers: dict[str, Convert] = {field.name: make_writer(field.type) for field in columns}
        self._rows: list[Row] = []
        self._hidden: list[Row] = []

    def check(self, row: object, key: Row) -> Row:
        """The row with its key. ValueError if it does not fit the columns."""
        if not isinstance(row, Mapping):
            raise ValueError(f"expected a dict with the columns {', '.join(self._columns.names)}, got {row!r:.100}")
        checked = {**row, **{name: key[name] for name in self._key if name in self._writers}}
        for name, value in checked.items():
            if name not in self._writers:
                raise ValueError(f"unknown column {name!r}: the columns are {', '.join(self._columns.names)}")
            try:
                self._writers[name](value)
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"column {name!r}: {error}") from None
        return checked

    def add(self, row: Row, hidden: Row) -> None:
        self._rows.append(row)
        self._hidden.append(hidden)

    def make_table(self) -> pa.Table:
        columns = [*to_columns(self._rows, self._columns).columns, *to_columns(self._hidden, HIDDEN).columns]
        return pa.Table.from_arrays(columns, schema=stream_schema(self._columns))


class _Context:
    """What the processor sees of the row or timer that is processed."""

    def __init__(self, key: Row, hidden: Row, timers: dict[str, int], after: int | None) -> None:
        self.values = key
        self.hidden = hidden
        self.timers = timers
        self._after = after
        """The time of the timer that fires."""

    @property
    def key(self) -> Any:
        values = tuple(self.values.values())
        return values[0] if len(values) == 1 else values

    @property
    def timestamp(self) -> datetime:
        return to_datetime(self.hidden[TIMESTAMP])

    @property
    def stream_time(self) -> datetime:
        return to_datetime(self.hidden[STREAM_TIME])

    @property
    def headers(self) -> Headers:
        return [(each["key"], each["value"]) for each in self.hidden[HEADERS] or ()]

    @property
    def topic(self) -> str | None:
        found: str | None = self.hidden[TOPIC]
        return found

    @property
    def partition(self) -> int | None:
        found: int | None = self.hidden[PARTITION]
        return found

    @property
    def offset(self) -> int | None:
        found: int | None = self.hidden[OFFSET]
        return found

    def timer(self, name: str, when: Time) -> None:
        time = to_ms(when, f"timer {name!r}")
        if not isinstance(name, str) or not name:
            raise ValueError(f"timer {name!r}: a name is a text that is not empty")
        if self._after is not None and time <= self._after:
            raise ValueError(f"timer {name!r}: {to_datetime(time)} is not after the timer that fires, which never ends")
        self.timers[name] = time

    def cancel(self, name: str) -> None:
        self.timers.pop(name, None)

    def schedule(self, *_: Any, **__: Any) -> NoReturn:
        """Kafka Streams' punctuation, which goes by the wall clock or by the time of one task."""
        later.refuse(later.WALL_CLOCK_TIMERS, "schedule")


class _ProcessorBatch:
    """One batch of a processor."""

    def __init__(self, kernel: ProcessKernel, rows: pa.Table, context: KernelContext) -> None:
        self._kernel = kernel
        self._rows = rows
        self._context = context
        self._states = states_of(kernel.processor)
        self._present = Present()
        self._processor = kernel.processor()
        for name, state in bind_states(self._states, self._present).items():
            bind(self._processor, name, state)
        self._store: Store = context.store(kernel.stores[0].name)
        self._timer_store: Store = context.store(kernel.stores[1].name)
        self._times = StreamTimes(self._timer_store)
        self._outputs = {name: _Output(columns, kernel.key) for name, columns in kernel.outputs.items()}
        self._loaded: dict[bytes, KeyState] = {}
        self._heap: list[tuple[int, bytes, str]] = []
        self._read_until = FIRST_KEY

    def run(self) -> Sequence[pa.Table]:
        keys = encode_keys(self._rows, self._kernel.key)
        contents = to_dicts(self._rows, self._kernel.columns_before.names)
        hidden = to_dicts(self._rows, HIDDEN.names)
        self._times.expect(self._context.source_times)
        self._times.expect(each[SOURCE] for each in hidden)
        reached: dict[int, int] = {}
        for each in hidden:
            if each[SOURCE] is not None:
                reached[each[SOURCE]] = max(each[STREAM_TIME], reached.get(each[SOURCE], -1))
        self._read_timers(self._times.preview(reached))
        self._load([key for key in keys if key is not None])
        latest: dict[bytes, int] = {}
        for index, (key, row, ours) in enumerate(zip(keys, contents, hidden, strict=True)):
            if self._times.advance(ours[SOURCE], ours[STREAM_TIME]):
                self._fire(ours[ORDER], ours[SOURCE])
            if key is None:
                self._context.dropped[self._kernel.label, NULL_KEY] += 1
                continue
            latest[key] = max(ours[TIMESTAMP], latest.get(key, ours[TIMESTAMP]))
            self._process(key, row, ours, index)
            self._fire(ours[ORDER], ours[SOURCE])
        self._times.finish(self._context.source_times, self._context.idle_times, self._kernel.close_idle_ms)
        self._read_timers(self._times.closed)
        self._load(())
        self._fire(hidden[-1][ORDER] if hidden else 0, None)
        for key, state in self._loaded.items():
            if state.is_changed:
                self._store.put(key, state.encode(key), latest.get(key))
        return [output.make_table() for output in self._outputs.values()]

    # State and timers

    def _load(self, keys: Iterable[bytes]) -> None:
        """Read the state of these keys and of those whose timers may fire."""
        wanted = dict.fromkeys([*keys, *(key for _, key, _ in self._heap)])
        missing = [key for key in wanted if key not in self._loaded]
        if missing:
            for key, content in zip(missing, self._store.get_many(missing), strict=True):
                self._loaded[key] = KeyState(content, self._states)

    def _read_timers(self, closed: int) -> None:
        """Read the timers that fire until this time."""
        until = encode_time(max(closed, -1) + 1)
        if until > self._read_until:
            for id, _ in self._timer_store.range(self._read_until, until):
                heappush(self._heap, _split_timer(id))
            self._read_until = until

    def _change_timers(self, key: bytes, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        for name in dict.fromkeys([*before, *after]):
            if before.get(name) == after.get(name):
                continue
            if name in before:
                self._timer_store.put(_timer_id(before[name], key, name), None)
            if name in after:
                self._timer_store.put(_timer_id(after[name], key, name), b"{}")
                if _timer_id(after[name], key, name) < self._read_until:
                    heappush(self._heap, (after[name], key, name))

    def _fire(self, order: int, source: int | None) -> None:
        """Fire the timers that all source partitions have reached, in the order of their times."""
        while self._heap and self._heap[0][0] <= self._times.closed:
            time, key, name = heappop(self._heap)
            state = self._loaded[key]
            if name == CLEANUP:
                if state.cleanup == time:
                    state.expire(self._times.closed)
                    self._plan(key, {CLEANUP: time}, state)
            elif state.timers.get(name) == time:
                del state.timers[name]
                state.is_changed = True
                self._timer_store.put(_timer_id(time, key, name), None)
                self._process_timer(key, name, time, order, source)

    def _plan(self, key: bytes, before: Mapping[str, int], state: KeyState) -> None:
        after = {} if state.cleanup is None else {CLEANUP: state.cleanup}
        self._change_timers(key, before, after)

    # Calls of the user's methods

    def _process(self, key: bytes, row: Row, hidden: Row, index: int) -> None:
        values = {name: row[name] for name in self._kernel.key}
        context = _Context(values, hidden, dict(self._loaded[key].timers), None)
        error = self._call(key, context, lambda: self._processor.process(row, context))
        if error is not None:
            where = f"offset {context.offset} of {context.topic}-{context.partition}"
            self._fail(error, where, self._rows.slice(index, 1))

    def _process_timer(self, key: bytes, name: str, time: int, order: int, source: int | None) -> None:
        kernel = self._kernel
        columns = pa.schema([kernel.columns_before.field(each) for each in kernel.key])
        values: Row = decode_keys([key], columns).to_pylist()[0] if kernel.key else {}
        hidden: Row = dict.fromkeys(HIDDEN.names)
        hidden |= {ORDER: order, TIMESTAMP: time, STREAM_TIME: self._times.closed, SOURCE: source}
        context = _Context(values, hidden, dict(self._loaded[key].timers), time)
        timer = Timer(name, to_datetime(time))
        error = self._call(key, context, lambda: self._processor.on_timer(timer, context))
        if error is not None:
            row = to_columns([{**values, **hidden}], stream_schema(kernel.columns_before))
            self._fail(error, f"timer {name!r} of key {context.key!r}", row)

    def _call(self, key: bytes, context: _Context, call: Any) -> Exception | None:
        """Call a method and take over what it has yielded, its state and its timers. If it fails, nothing of it is
        kept, and the exception is returned."""
        self._present.now = context.hidden[STREAM_TIME]
        self._present.state = state = self._loaded[key]
        before = None if self._context.on_error == "fail" else state.copy()
        try:
            made = [self._read_result(each, context) for each in call() or ()]
        except Exception as error:
            if before is not None:
                self._loaded[key] = before
            return error
        for output, row, hidden in made:
            self._outputs[output].add(row, hidden)
        if context.timers != state.timers:
            self._change_timers(key, state.timers, context.timers)
            state.timers = context.timers
            state.is_changed = True
        if state.is_changed and state.plan_cleanup():
            self._plan(key, {}, state)
        return None

    def _read_result(self, result: Result, context: _Context) -> tuple[str | None, Row, Row]:
        """The output, the row and the columns of ours of something that was yielded."""
        if isinstance(result, tuple):
            if len(result) != 2:
                raise ValueError(f"expected a row, or the name of an output and a row, got {result!r:.100}")
            result = Emit(result[1], result[0])
        emit = result if isinstance(result, Emit) else Emit(result)
        if emit.output not in self._outputs:
            names = ", ".join(repr(name) for name in self._outputs if name is not None) or "none but the main one"
            raise ValueError(f"unknown output {emit.output!r}: there are {names}")
        row = self._outputs[emit.output].check(emit.row, context.values)
        hidden = context.hidden
        if emit.timestamp is not None:
            hidden = {**hidden, TIMESTAMP: to_ms(emit.timestamp, "timestamp")}
        if emit.headers is not None:
            hidden = {**hidden, HEADERS: [{"key": str(name), "value": value} for name, value in emit.headers]}
        return emit.output, row, hidden

    def _fail(self, error: Exception, where: str, row: pa.Table) -> None:
        reason = f"{type(error).__name__}: {error}"
        if self._context.on_error == "fail":
            raise FunctionFailed(f"{self._kernel.label}: {where}: {reason}") from error
        self._context.failed.append(FailedRows(self._kernel.label, row, [reason]))


def _timer_id(time: int, key: bytes, name: str) -> bytes:
    return encode_time(time) + prefix_of(key) + name.encode()


def _split_timer(id: bytes) -> tuple[int, bytes, str]:
    """The time, the key and the name of a timer."""
    rest = id[_TIME_BYTES:]
    end = rest.index(b"\x00\x01") + 2
    key, _ = split_window_key(rest[:end] + id[:_TIME_BYTES])
    return decode_time(id[:_TIME_BYTES]), key, rest[end:].decode()
