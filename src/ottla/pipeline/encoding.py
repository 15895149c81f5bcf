"""Encodes Arrow rows as the record batches that a producer sends, grouped by partition.

Rows have the columns of Spark's Kafka sink: value, and optionally key, headers, topic and partition. They may have a
timestamp too, as milliseconds or as one of Arrow's timestamps; rows without one get the current time. A row goes to the
partition in its column. Otherwise its key decides, with the same hash as in the Java client. Rows without a key go to a
"sticky" partition, which changes after every `batch_bytes` bytes.

Small Arrow batches are collected first, so that record batches reach a good size even with many partitions. The encoded
batches have no producer id and no checksum in their headers; the sender fills in both.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.client.backoff import now_ms as wall_clock_ms
from ottla.client.sending import EncodedBatch
from ottla.errors import ErrorCode, KafkaError
from ottla.pipeline import packing
from ottla.records.batch import HEADER_SIZE
from ottla.records.compression import NONE, compress
from ottla.topic_partition import TopicPartition

BATCH_BYTES = 256 * 1024
RECORD_BYTES_MAX = 1024 * 1024
"""The default of max.request.size in the Java client. A broker's default message.max.bytes accepts it too."""

TIMESTAMP_MAX = (1 << 62) - 1
"""The largest timestamp in milliseconds. A record stores the difference to the timestamp of its batch, and differences
of larger timestamps may not fit into its 64 bits."""

GATHERED_BYTES_MAX = 8 * 1024 * 1024

COLUMNS = ("value", "key", "headers", "topic", "partition", "timestamp")

_NO_BYTES = np.empty(0, np.uint8)
_NO_NUMBERS = np.empty(0, np.int32)
_NO_TIMES = np.empty(0, np.int64)
for _nothing in (_NO_BYTES, _NO_NUMBERS, _NO_TIMES):
    _nothing.flags.writeable = False  # like Arrow's buffers, so that numba compiles each kernel for one signature only

_UNITS_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}

Array = Any
"""A numpy array. Its shape and type are not checked statically."""

BytesColumn = tuple[Array, Array, Array, int]
"""Offsets, bytes, validity bitmap and the position of the first row in the bitmap."""

_NO_COLUMN: BytesColumn = (_NO_NUMBERS, _NO_BYTES, _NO_BYTES, 0)


class _Headers(NamedTuple):
    offsets: Array
    bitmap: Array
    first_bit: int
    name: BytesColumn
    value: BytesColumn


_NO_HEADERS = _Headers(_NO_NUMBERS, _NO_BYTES, 0, _NO_COLUMN, _NO_COLUMN)


class _Topics:
    """The topics seen so far. Every partition of every topic has a number, its target; a topic's targets are
    consecutive."""

    def __init__(self, partition_count: Callable[[str], int], random: Random) -> None:
        self._partition_count = partition_count
        self._random = random
        self._index: dict[str, int] = {}
        self.targets: list[TopicPartition] = []
        # Indexed by topic: its first target, its number of partitions, its sticky partition and the bytes sent there.
        self.first = np.empty(0, np.int64)
        self.counts = np.empty(0, np.int64)
        self.sticky = np.empty(0, np.int64)
        self.sticky_bytes = np.empty(0, np.int64)

    def index(self, topic: str) -> int:
        """The topic's position in the arrays; a new topic is added to them."""
        if topic not in self._index:
            count = self._partition_count(topic)
            self._index[topic] = len(self._index)
            self.first = np.append(self.first, len(self.targets))
            self.counts = np.append(self.counts, count)
            self.sticky = np.append(self.sticky, self._random.randrange(count))
            self.sticky_bytes = np.append(self.sticky_bytes, 0)
            self.targets.extend(TopicPartition(topic, partition) for partition in range(count))
        return self._index[topic]


class Encoder:
    def __init__(
        self,
        partition_count: Callable[[str], int],
        random: Random,
        *,
        topic: str | None = None,
        codec: int = NONE,
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        record_bytes_max: int = RECORD_BYTES_MAX,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """If `topic` is given, all rows go there and their topic column is ignored. `random` chooses the first sticky
        partition of each topic, so that many small producers do not all start with the same one."""
        self._topics = _Topics(partition_count, random)
        self._topic = topic
        self._codec = codec
        self._level = level
        self._batch_bytes = max(min(batch_bytes, record_bytes_max), HEADER_SIZE)
        self._record_bytes_max = record_bytes_max
        self._now_ms = now_ms
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._rows_before = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[EncodedBatch]:
        """Adds rows and returns the batches that are full; other rows wait for more rows or for `flush`.

        If a row cannot be sent, KafkaError names its number among all rows that were added, and none of the rows that
        are encoded together with it are returned.
        """
        self._gathered.append(rows)
        self._gathered_bytes += rows.nbytes
        enough = min(self._batch_bytes * max(len(self._topics.targets), 1), GATHERED_BYTES_MAX)
        if self._gathered_bytes >= enough:
            yield from self.flush()

    def flush(self) -> Iterator[EncodedBatch]:
        """Encodes all rows that were added and not yet encoded."""
        lots, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if len(lots) > 1:
            lots = pa.Table.from_batches(lots).combine_chunks().to_batches()
        for rows in lots:
            if rows.num_rows:
                yield from self._encode(rows)
            self._rows_before += rows.num_rows

    def _encode(self, rows: pa.RecordBatch) -> Iterator[EncodedBatch]:
        count = rows.num_rows
        key, value = self._bytes(rows, "key"), self._bytes(rows, "value")
        headers = self._headers(rows)
        sizes = np.empty(count, np.int64)
        packing.measure(key, value, headers.offsets, headers.name, headers.value, sizes)
        now = self._now_ms()
        times = self._find_timestamps(rows, now)
        if len(times):
            sizes += packing.DELTA_SIZE_MAX - 1
        largest = int(sizes.argmax())
        if sizes[largest] + HEADER_SIZE > self._record_bytes_max:
            raise self._make_error(
                int((sizes + HEADER_SIZE > self._record_bytes_max).argmax()),
                ErrorCode.MESSAGE_TOO_LARGE,
                f"is larger than max.request.size={self._record_bytes_max} bytes",
            )
        targets = self._choose_targets(rows, key, sizes)
        begins = np.zeros(len(self._topics.targets) + 1, np.int64)
        lot_bytes = np.zeros(len(self._topics.targets), np.int64)
        order = np.empty(count, np.int64)
        packing.group(targets, sizes, begins, lot_bytes, order)
        for target in np.flatnonzero(lot_bytes):
            topic, partition = self._topics.targets[target]
            first, last, left = int(begins[target]), int(begins[target + 1]), int(lot_bytes[target])
            while first < last:
                room = max(self._batch_bytes, HEADER_SIZE + int(sizes[order[first]]))
                buffer: Array = np.empty(min(room, HEADER_SIZE + left), np.uint8)
                following, end, highest = packing.write_records(
                    buffer, HEADER_SIZE, len(buffer), order, first, last, key, value, tuple(headers), times
                )
                left -= end - HEADER_SIZE
                data = self._compress(memoryview(buffer)[:end])
                base, highest = (int(times[order[first]]), int(highest)) if len(times) else (now, now)
                yield EncodedBatch(topic, partition, following - first, base, self._codec, data, highest)
                first = following

    def _compress(self, batch: memoryview) -> memoryview | bytearray:
        if self._codec == NONE:
            return batch
        packed = bytearray(HEADER_SIZE)
        packed += compress(self._codec, batch[HEADER_SIZE:], self._level)
        return packed

    # Columns

    def _choose_targets(self, rows: pa.RecordBatch, key: BytesColumn, sizes: Array) -> Array:
        """The target of each row."""
        topic_of_row = self._find_topic_of_row(rows)
        partitions, bitmap, first_bit = self._choose_partitions(rows)
        targets = np.empty(rows.num_rows, np.int64)
        topics = self._topics
        wrong = packing.choose_targets(
            topic_of_row,
            partitions,
            bitmap,
            first_bit,
            key,
            sizes,
            topics.first,
            topics.counts,
            topics.sticky,
            topics.sticky_bytes,
            self._batch_bytes,
            targets,
        )
        if wrong >= 0:
            topic = self._topic if self._topic is not None else rows.column("topic")[wrong].as_py()
            count = int(topics.counts[topics.index(topic)])
            message = f"names partition {partitions[wrong]}, but topic {topic!r} has {count}"
            raise self._make_error(wrong, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return targets

    def _find_topic_of_row(self, rows: pa.RecordBatch) -> Array:
        """The index of each row's topic; an empty array means topic 0 for all rows."""
        if self._topic is not None:
            place = self._topics.index(self._topic)
            return np.full(rows.num_rows if place else 0, place, np.int64)
        column = _column(rows, "topic")
        if column is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the rows have no column 'topic', and no topic is set")
        if column.null_count:
            missing = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
            raise self._make_error(missing, ErrorCode.INVALID_TOPIC_EXCEPTION, "has no topic")
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        places = np.array([self._topics.index(name) for name in column.dictionary.to_pylist()], np.int64)
        return places[column.indices.to_numpy(zero_copy_only=False)]

    def _choose_partitions(self, rows: pa.RecordBatch) -> tuple[Array, Array, int]:
        column = _column(rows, "partition")
        if column is None or column.null_count == len(column):
            return _NO_NUMBERS, _NO_BYTES, 0
        if column.type != pa.int32():
            column = _cast(column, pa.int32(), "partition")
        _, data = column.buffers()
        return _numbers(data, column.offset, len(column)), *_find_validity(column)

    def _find_timestamps(self, rows: pa.RecordBatch, now: int) -> Array:
        """The timestamp of each row in milliseconds; an empty array if none has one."""
        column = _column(rows, "timestamp")
        if column is None or column.null_count == len(column):
            return _NO_TIMES
        if pa.types.is_timestamp(column.type):
            units_per_ms = _UNITS_PER_SECOND[column.type.unit] / 1000
            column = column.cast(pa.int64())
        elif pa.types.is_int64(column.type):
            units_per_ms = 1
        else:
            raise _make_type_error("timestamp", column.type, "timestamp or int64 (milliseconds)")
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        times = numbers // int(units_per_ms) if units_per_ms >= 1 else numbers * int(1 / units_per_ms)
        is_wrong = (times < 0) | (times > TIMESTAMP_MAX)
        if is_wrong.any():
            wrong = int(is_wrong.argmax())
            message = f"has the timestamp {times[wrong]} ms; records have 0 (1970) to {TIMESTAMP_MAX}"
            raise self._make_error(wrong, ErrorCode.INVALID_TIMESTAMP, message)
        if column.null_count:
            times = np.where(column.is_null().to_numpy(zero_copy_only=False), now, times)
        times.flags.writeable = False
        return times

    def _bytes(self, rows: pa.RecordBatch, name: str) -> BytesColumn:
        column = _column(rows, name)
        return _NO_COLUMN if column is None else _make_bytes_column(column, name)

    def _headers(self, rows: pa.RecordBatch) -> _Headers:
        column = _column(rows, "headers")
        if column is None or column.null_count == len(column):
            return _NO_HEADERS
        if not pa.types.is_list(column.type) or not pa.types.is_struct(column.type.value_type):
            raise _make_type_error("headers", column.type, "array<struct<key: string, value: binary>>")
        pairs = column.values
        names, values = pairs.field("key"), pairs.field("value")
        if pairs.null_count or names.null_count:
            missing = [array.is_null().to_numpy(zero_copy_only=False) for array in (pairs, names)]
            raise self._make_header_error(column, int((missing[0] | missing[1]).argmax()))
        _, offsets = column.buffers()[:2]
        return _Headers(
            _numbers(offsets, column.offset, len(column) + 1),
            *_find_validity(column),
            _make_bytes_column(names, "headers.key"),
            _make_bytes_column(values, "headers.value"),
        )

    def _make_header_error(self, column: pa.ListArray, at: int) -> KafkaError:
        row = int(np.searchsorted(column.offsets.to_numpy(zero_copy_only=False), at, side="right")) - 1
        return self._make_error(row, ErrorCode.INVALID_RECORD, "has a header without a key")

    def _make_error(self, row: int, code: ErrorCode, message: str) -> KafkaError:
        return KafkaError(code, f"row {self._rows_before + row} {message}")


def _column(rows: pa.RecordBatch, name: str) -> Any:
    return rows.column(name) if name in rows.schema.names else None


def _make_bytes_column(column: pa.Array, name: str) -> BytesColumn:
    if pa.types.is_null(column.type):
        return _NO_COLUMN
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        if not (pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)):
            raise _make_type_error(name, column.type, "string or binary")
        column = _cast(column, pa.binary(), name)
    _, offsets, data = column.buffers()
    return _numbers(offsets, column.offset, len(column) + 1), _data(data), *_find_validity(column)


def _cast(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"column {name!r}: {error}") from None
    except pa.ArrowNotImplementedError:
        raise _make_type_error(name, column.type, str(wanted)) from None


def _make_type_error(name: str, found: pa.DataType, wanted: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"column {name!r} is {found}; it must be {wanted}")


def _data(buffer: pa.Buffer | None) -> Array:
    return _NO_BYTES if buffer is None or not buffer.size else _view(buffer, np.uint8)


def _numbers(buffer: pa.Buffer | None, first: int, count: int) -> Array:
    if buffer is None or not buffer.size:
        return np.zeros(count, np.int32)
    return _view(buffer, np.int32)[first : first + count]


def _find_validity(column: pa.Array) -> tuple[Array, int]:
    bitmap = column.buffers()[0] if column.null_count else None
    return (_NO_BYTES, 0) if bitmap is None else (_view(bitmap, np.uint8), column.offset)


def _view(buffer: pa.Buffer, kind: type) -> Array:
    usable = buffer.size // np.dtype(kind).itemsize
    view: Array = np.frombuffer(buffer, kind, usable)
    view.flags.writeable = False
    return view
