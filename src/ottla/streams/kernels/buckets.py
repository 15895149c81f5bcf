"""Rows of one side of a stream-stream join, by key and time.

Rows of a key are kept in *buckets*, each of which covers a range of time as long as the join's window. So the rows that
match another one are in at most two buckets, and one round trip reads those of a whole batch. A bucket is cut into
chunks of so many rows that a hot key neither makes a record too large nor has all of its rows written again and again.

    start of the bucket (8 bytes), escaped key, number of the chunk (4 bytes)   ->   JSON objects, one row on each line

The time comes first, so that expired buckets lie side by side. Rows of a bucket stay in the order in which they came;
a row's place in its bucket never changes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ottla.streams.kernels.stream_times import FIRST_KEY
from ottla.streams.kernels.versions import number_array
from ottla.streams.rows import STREAM_TIME, TIMESTAMP
from ottla.streams.state.keys import encode_time, prefix_of
from ottla.streams.state.store import Store
from ottla.streams.state.values import RowCodec

CHUNK_ROWS: Final = 128
MATCHED: Final = "_matched"


def bucket_codec(fields: Sequence[pa.Field], *, with_match: bool = False, with_stream_time: bool = False) -> RowCodec:
    """How rows with these value columns are kept: with their time, perhaps whether they had a match and the stream time
    that they came with."""
    match = [pa.field(MATCHED, pa.bool_())] if with_match else []
    stream_time = [pa.field(STREAM_TIME, pa.int64())] if with_stream_time else []
    return RowCodec(pa.schema([pa.field(TIMESTAMP, pa.int64()), *match, *stream_time, *fields]))


@dataclass(frozen=True)
class BucketRow:
    """A row in a bucket: its number among the rows of the side, and its place in its bucket."""

    number: int
    place: int
    time: int


class SideRows:
    """The rows of one side that a batch can meet: those in the buckets that were loaded, and those of the batch.

    Rows have numbers: first those of the buckets, then those of the batch.
    """

    def __init__(self, store: Store, codec: RowCodec, width_ms: int) -> None:
        self._store = store
        self._codec = codec
        self._has_match = MATCHED in codec.columns.names
        self._width_ms = width_ms
        self._buckets: dict[bytes, list[BucketRow]] = {}
        self._changed: dict[bytes, set[int]] = {}

    def start_of(self, time: int) -> int:
        """The start of the bucket that this time is in."""
        return time - time % self._width_ms

    def load(self, needed: Iterable[tuple[bytes, int]], rows: pa.Table) -> None:
        """Load the buckets of these keys and starts. `rows` are those of the batch."""
        found: dict[bytes, list[bytes]] = {bucket_id(key, start): [] for key, start in needed}
        asked, chunk, count = list(found), 0, 1
        while asked:
            ids = [each + _number(chunk + step) for each in asked for step in range(count)]
            chunks = self._store.get_many(ids)
            full = []
            for at, bucket in enumerate(asked):
                for chunk_lines in chunks[at * count : (at + 1) * count]:
                    if chunk_lines is not None:
                        found[bucket] += chunk_lines.split(b"\n")
                if len(found[bucket]) == (chunk + count) * CHUNK_ROWS:
                    full.append(bucket)
            asked, chunk, count = full, chunk + count, count * 2
        lines = [line for each in found.values() for line in each]
        stored = self._codec.decode(lines) if lines else self._codec.columns.empty_table()
        own = rows.append_column(MATCHED, pa.repeat(False, rows.num_rows)) if self._has_match else rows
        own = own.select(self._codec.columns.names)
        self.values: pa.Table = pa.concat_tables([stored, own.cast(self._codec.columns)]).combine_chunks()
        self.times: list[int] = self.values.column(TIMESTAMP).to_pylist()
        has_time = STREAM_TIME in self._codec.columns.names
        self.stream_times: list[int] = self.values.column(STREAM_TIME).to_pylist() if has_time else []
        self.is_matched: list[bool] = self.values.column(MATCHED).to_pylist() if self._has_match else []
        self.first_row = len(lines)
        number = 0
        for bucket, content in found.items():
            self._buckets[bucket] = [
                BucketRow(number + place, place, self.times[number + place]) for place in range(len(content))
            ]
            number += len(content)

    def find(self, key: bytes, start: int, end: int) -> list[BucketRow]:
        """The rows with this key from the time `start` up to `end`, by time; of equal times, the first that came first.
        Their buckets must have been loaded."""
        found = []
        for bucket_start in dict.fromkeys((self.start_of(start), self.start_of(end))):
            bucket = self._buckets[bucket_id(key, bucket_start)]
            found += [row for row in bucket if start <= row.time <= end]
        return sorted(found, key=lambda row: (row.time, row.place))

    def add(self, key: bytes, row: int) -> BucketRow:
        """Put a row of the batch into its bucket."""
        number = self.first_row + row
        time = self.times[number]
        bucket = self._buckets[bucket_id(key, self.start_of(time))]
        added = BucketRow(number, len(bucket), time)
        bucket.append(added)
        self._change(key, added)
        return added

    def match(self, key: bytes, row: BucketRow) -> None:
        """Note that the row has had a match."""
        self.is_matched[row.number] = True
        self._change(key, row)

    def save(self) -> None:
        """Write the chunks that have changed."""
        numbers: list[int] = []
        parts: list[tuple[bytes, int]] = []
        for bucket, chunks in self._changed.items():
            content = self._buckets[bucket]
            for chunk in sorted(chunks):
                part = content[chunk * CHUNK_ROWS : (chunk + 1) * CHUNK_ROWS]
                numbers += [row.number for row in part]
                parts.append((bucket + _number(chunk), len(part)))
        if not numbers:
            return
        rows = self.values.take(number_array(numbers))
        if self._has_match:
            flags = pa.array([self.is_matched[number] for number in numbers], pa.bool_())
            rows = rows.set_column(rows.schema.get_field_index(MATCHED), MATCHED, flags)
        lines = self._codec.encode(rows)
        start = 0
        for key, count in parts:
            self._store.put(key, b"\n".join(lines[start : start + count]))
            start += count

    def expire(self, before: int, now: int) -> None:
        """Delete the buckets that end before the time `now`; the batch before has done so for the time `before`."""
        if self.start_of(now) > max(self.start_of(before), 0):
            for key, _ in list(self._store.range(FIRST_KEY, encode_time(self.start_of(now)))):
                self._store.put(key, None)

    def _change(self, key: bytes, row: BucketRow) -> None:
        chunks = self._changed.setdefault(bucket_id(key, self.start_of(row.time)), set())
        chunks.add(row.place // CHUNK_ROWS)


def bucket_id(key: bytes, start: int) -> bytes:
    return encode_time(start) + prefix_of(key)


def _number(chunk: int) -> bytes:
    return chunk.to_bytes(4)
