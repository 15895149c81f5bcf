"""Joins of two streams within a window of time.

A left and a right row with the same key match if the right one is at most `before_ms` earlier and `after_ms` later. The
result has the higher of both times. Rows that are equal in everything are still two rows.

Late rows. The window of a left row ends `after_ms` after it, that of a right row `before_ms` after it. A row is late if
its own source partition was more than the grace period beyond that end. Late rows are dropped.

Left joins. A left row without a match comes out once its window is closed: when all source partitions are more than the
grace period beyond its end. A right row matches a left one only if the right row's own source partition was not beyond
that when it came. So a left row comes out with matches or without, never both, whatever the order of the two streams
and however they are cut into batches. Kafka Streams goes by the highest time of both sides, and may let a late right
row match a left row that has come out already.

Rows without a value are dropped, and so are rows without a key, except that a left join lets them out without a match.

Stores: NAME-left and NAME-right have the rows (see `buckets.py`) for the size of the window and the grace period,
NAME-left also has stream times. NAME-unmatched, of a left join, has left rows that wait for a match:
time (8 bytes), escaped key, place in the bucket (4 bytes) -> the row as JSON.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ottla.streams.kernels.buckets import SideRows, bucket_codec
from ottla.streams.kernels.functions import sort_rows
from ottla.streams.kernels.joining import JoinShape, Taken, in_order, take_hidden, take_keys
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.stream_times import StreamTimes
from ottla.streams.kernels.unmatched import Released, UnmatchedRows, waiting_id
from ottla.streams.kernels.versions import NULL_KEY_OR_VALUE, is_null_value, number_array
from ottla.streams.rows import HIDDEN, ORDER, SOURCE, STREAM_TIME, TIMESTAMP, stream_schema
from ottla.streams.state.keys import decode_keys, encode_keys
from ottla.streams.state.values import RowCodec

LEFT, RIGHT = 0, 1
_KEPT = (TIMESTAMP, STREAM_TIME, SOURCE)


@dataclass(frozen=True)
class JoinWindow:
    """How far rows of both streams may be apart, and how long a join waits for them."""

    before_ms: int
    """How much earlier than the left row the right one may be."""
    after_ms: int
    grace_ms: int
    close_idle_ms: int | None = None

    @property
    def size_ms(self) -> int:
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """A row that is so much older than all source partitions matches no row that is not late."""
        return self.size_ms + self.grace_ms

    def open_ms(self, side: int) -> int:
        """How long after a row of this side its window is open."""
        return (self.before_ms if side else self.after_ms) + self.grace_ms

    def match(self, side: int, time: int) -> tuple[int, int]:
        """The first and the last time of the other side that match a row of this side."""
        before, after = (self.after_ms, self.before_ms) if side else (self.before_ms, self.after_ms)
        return max(0, time - before), time + after


class StreamJoinKernel:
    """Inputs: rows of the left and of the right stream. Output: rows of the result."""

    def __init__(self, label: str, name: str, shape: JoinShape, window: JoinWindow) -> None:
        if shape.how not in ("inner", "left"):
            raise ValueError(f"{label}: unknown kind of join {shape.how!r}")
        self._label = label
        self._shape = shape
        self._window = window
        self._is_left_join = is_left_join = shape.how == "left"
        names = ("left", "right", "unmatched") if is_left_join else ("left", "right")
        self.stores: Sequence[StoreSpec] = [StoreSpec(f"{name}-{x}") for x in names]
        self._codecs = (
            bucket_codec(shape.left.values, with_match=is_left_join),
            bucket_codec(shape.right.values, with_stream_time=is_left_join),
        )
        self.close_idle_ms = window.close_idle_ms
        self._waiting_codec = RowCodec(pa.schema([*shape.left.values, *(HIDDEN.field(each) for each in _KEPT)]))

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        stores = [context.store(spec.name) for spec in self.stores]
        times = StreamTimes(stores[LEFT])
        closed_before = times.closed
        times.expect(context.source_times)
        times.expect(source for rows in inputs for source in rows.column(SOURCE).unique().to_pylist())
        batch = _Batch(inputs, [self._keys_of(side, inputs[side], context) for side in (LEFT, RIGHT)])
        sides = [SideRows(stores[side], self._codecs[side], self._window.size_ms + 1) for side in (LEFT, RIGHT)]
        for side in (LEFT, RIGHT):
            sides[side].load(self._find_buckets(batch, side, sides[side]), inputs[side])
        waiting = UnmatchedRows(stores[-1], self._window.open_ms(LEFT)) if self._is_left_join else None
        self._follow(batch, sides, times, waiting)
        results = [self._make_joined(batch, sides)]
        if waiting:
            released, waiting.released = waiting.released, []
            results.insert(0, self._make_released(released, inputs[LEFT]))
        times.finish(context.source_times, context.idle_times, self._window.close_idle_ms)
        if waiting:
            waiting.close(times.closed, batch.last_order)
            results.append(self._make_released(waiting.released, inputs[LEFT]))
            waiting.save(lambda rows: self._waiting_codec.encode(inputs[LEFT].take(number_array(rows))))
        for each in sides:
            each.save()
            each.expire(closed_before - self._window.retention_ms, times.closed - self._window.retention_ms)
        return [sort_rows(pa.concat_tables(results))]

    def _keys_of(self, side: int, rows: pa.Table, context: KernelContext) -> list[bytes | None]:
        """The key of each row that takes part; DROPPED for one that is ignored or late."""
        shape = (self._shape.left, self._shape.right)[side]
        keys = encode_keys(rows, shape.key)
        is_ignored = is_null_value(rows, shape.null_value_names).to_pylist()
        times, stream_times = rows.column(TIMESTAMP).to_numpy(), rows.column(STREAM_TIME).to_numpy()
        is_late = times + self._window.open_ms(side) < stream_times
        late = []
        for row, key in enumerate(keys):
            if is_ignored[row] or (key is None and not (self._is_left_join and side == LEFT)):
                context.dropped[self._label, NULL_KEY_OR_VALUE] += 1
                keys[row] = _DROPPED
            elif is_late[row]:
                late.append(row)
                keys[row] = _DROPPED
        if late:
            context.late.append((self._label, rows.take(number_array(late))))
        return keys

    def _find_buckets(self, batch: "_Batch", side: int, buckets: SideRows) -> Iterator[tuple[bytes, int]]:
        """Keys and starts of the side's buckets that the batch needs: for its own rows, and for matches."""
        for key, time in batch.keyed_times(side):
            yield key, buckets.start_of(time)
        for key, time in batch.keyed_times(1 - side):
            start, end = self._window.match(1 - side, time)
            yield key, buckets.start_of(start)
            yield key, buckets.start_of(end)

    def _follow(
        self, batch: "_Batch", sides: Sequence[SideRows], times: StreamTimes, waiting: UnmatchedRows | None
    ) -> None:
        """Process rows in their order. Rows that are ignored or late move the time, too."""
        if waiting:
            waiting.read(times.preview(batch.highest_times()))
        for side, row in in_order(batch.rows):
            stream_time = batch.stream_times[side][row]
            if times.advance(batch.sources[side][row], stream_time) and waiting:
                waiting.close(times.closed, batch.orders[side][row])
            key = batch.keys[side][row]
            if key is None:
                batch.add_result(side, row, sides[side].first_row + row, None, batch.times[side][row])
            elif key is not _DROPPED:
                self._join(batch, side, row, key, sides, waiting, max(stream_time, times.closed))

    def _join(
        self,
        batch: "_Batch",
        side: int,
        row: int,
        key: bytes,
        sides: Sequence[SideRows],
        waiting: UnmatchedRows | None,
        stream_time: int,
    ) -> None:
        own, other, time = sides[side], sides[1 - side], batch.times[side][row]
        matches = other.find(key, *self._window.match(side, time))
        if waiting and side == LEFT:
            matches = [each for each in matches if time + waiting.open_ms >= other.stream_times[each.number]]
        elif waiting:
            matches = [each for each in matches if each.time + waiting.open_ms >= stream_time]
        added = own.add(key, row)
        for match in matches:
            batch.add_result(side, row, added.number, match.number, max(time, match.time))
            if waiting and side == RIGHT and not other.is_matched[match.number]:
                other.match(key, match)
                waiting.remove(waiting_id(key, match))
        if waiting and side == LEFT:
            if matches:
                own.match(key, added)
            else:
                waiting.add(waiting_id(key, added), row)

    def _make_joined(self, batch: "_Batch", sides: Sequence[SideRows]) -> pa.Table:
        shape = self._shape
        keys = take_keys(batch.rows, [shape.left.key, shape.right.key], batch.causes)
        left, right = (Taken(sides[side].values, batch.numbers[side]) for side in (LEFT, RIGHT))
        columns = shape.make_values(keys, left, right, shape.columns.names)
        hidden = take_hidden(batch.rows, batch.causes, batch.result_times)
        return pa.Table.from_arrays([*columns, *hidden], schema=stream_schema(shape.columns))

    def _make_released(self, released: Sequence[Released], rows: pa.Table) -> pa.Table:
        """Left rows that come out without a match. They have the times that they came with. Time has caused them, so
        they have no record of their own."""
        shape, schema = self._shape, stream_schema(self._shape.columns)
        if not released:
            return schema.empty_table()
        stored = self._waiting_codec.decode([each.value for each in released])
        own = rows.select(stored.column_names)
        at = [index if each.row is None else len(released) + each.row for index, each in enumerate(released)]
        content = pa.concat_tables([stored, own.cast(stored.schema)]).take(number_array(at))
        keys = decode_keys([each.key for each in released], shape.left.key_columns).columns
        nothing = Taken(shape.right.columns.empty_table(), [None] * len(released))
        columns = shape.make_values(keys, Taken(content, range(len(released))), nothing, shape.columns.names)
        known = {name: content.column(name) for name in _KEPT}
        known[ORDER] = pa.array([each.order for each in released], pa.int64())
        hidden = [known.get(field.name, pa.nulls(len(released), field.type)) for field in HIDDEN]
        return pa.Table.from_arrays([*columns, *hidden], schema=schema)


_DROPPED: Final = b"dropped"
"""In place of a key, by identity: the row takes no part in the join."""


class _Batch:
    """The rows of a batch as Python lists, by side, and the pairs that were found."""

    def __init__(self, rows: Sequence[pa.Table], keys: Sequence[list[bytes | None]]) -> None:
        self.rows = rows
        self.keys = keys
        self.times, self.stream_times, self.sources, self.orders = (
            [each.column(name).to_pylist() for each in rows] for name in (TIMESTAMP, STREAM_TIME, SOURCE, ORDER)
        )
        self.causes: list[int] = []
        self.result_times: list[int] = []
        self.numbers: tuple[list[int | None], list[int | None]] = ([], [])

    @property
    def last_order(self) -> int:
        return max((each[-1] for each in self.orders if each), default=0)

    def highest_times(self) -> dict[int, int]:
        """The highest stream time of each source partition."""
        found: dict[int, int] = {}
        for sources, times in zip(self.sources, self.stream_times, strict=True):
            for source, time in zip(sources, times, strict=True):
                if source is not None and time > found.get(source, -1):
                    found[source] = time
        return found

    def keyed_times(self, side: int) -> Iterator[tuple[bytes, int]]:
        for key, time in zip(self.keys[side], self.times[side], strict=True):
            if key is not None and key is not _DROPPED:
                yield key, time

    def add_result(self, side: int, row: int, number: int, match: int | None, time: int) -> None:
        self.causes.append(row + (self.rows[LEFT].num_rows if side else 0))
        self.result_times.append(time)
        self.numbers[side].append(number)
        self.numbers[1 - side].append(match)
