"""Decodes record batches to Arrow batches with the columns, and exactly the types, of Spark's Kafka connector.

A `Decoder` collects records until they fill an Arrow batch. An Arrow batch has at most `ROWS_MAX` rows and `BYTES_MAX`
bytes, unless a single record batch is larger. Only the requested columns are copied. The buffers of an Arrow batch are
reused as soon as nothing refers to the batch any more.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.client.buffers import allocate_array
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import CODEC_MASK, CONTROL, DECODED_BYTES_MAX
from ottla.records.compression import CorruptBatch, decompress

Array = np.ndarray[Any, np.dtype[Any]]

ROWS_MAX = 32_768
BYTES_MAX = 12 * 1024 * 1024

_HEADER_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": _HEADER_TYPE,
}
COLUMNS = tuple(name for name in TYPES if name != "headers")
"""The columns of Spark's connector without includeHeaders."""

_TABLE_ROWS = 4096
"""How many record batches are indexed at a time."""
_DECOMPRESSED_BYTES = 1024 * 1024
"""Decompressed batches are joined until they have this size, then decoded together."""
_RECORD_SIZE_MIN = 6

Bytes = bytes | bytearray


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The schema of Arrow batches with these columns. ValueError if there is no column of that name."""
    for name in columns:
        if name not in TYPES:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(TYPES)}")
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


def decode(
    batches: Iterable[memoryview],
    topic: str,
    partition: int,
    start: int,
    end: int,
    columns: Sequence[str] = COLUMNS,
) -> Iterator[pa.RecordBatch]:
    """Decodes the records with offsets from `start` to before `end`.

    KafkaError(CORRUPT_MESSAGE) names the partition and the batch that cannot be read.
    """
    decoder = Decoder(topic, partition, start, end, columns)
    for each in batches:
        yield from decoder.feed(each)
    yield from decoder.flush()


def decode_up_to(
    rows_max: int,
    bytes_max: int,
    batches: Generator[memoryview, None, None],
    topic: str,
    partition: int,
    start: int,
    end: int,
    columns: Sequence[str] = COLUMNS,
) -> tuple[list[pa.RecordBatch], int]:
    """Decodes like `decode`, but ends after so many rows, or once so many bytes were read, and then closes `batches`.

    Returns the rows and the offset after them.
    """
    decoded: list[pa.RecordBatch] = []
    for found in decode(batches, topic, partition, start, end, columns):
        batch = found.slice(0, rows_max)
        decoded.append(batch)
        rows_max -= batch.num_rows
        bytes_max -= batch.nbytes
        if rows_max <= 0 or bytes_max <= 0:
            batches.close()
            return decoded, batch.column("offset")[-1].as_py() + 1
    return decoded, end


class Decoder:
    """Decodes the record batches of one partition that are fed to it in order."""

    def __init__(self, topic: str, partition: int, start: int, end: int, columns: Sequence[str] = COLUMNS) -> None:
        from ottla.pipeline import kernels

        self._kernels = kernels
        self._place = f"{topic}-{partition}"
        self._range = start, end
        self._wanted = tuple(name in columns for name in ("key", "value", "headers"))
        self._constants = {"topic": _Constant(topic, pa.string()), "partition": _Constant(partition, pa.int32())}
        self._schema = arrow_schema(columns)
        self._table = np.empty((_TABLE_ROWS, kernels.TABLE_WIDTH), np.int64)
        self._columns: _Columns | None = None

    def feed(self, batches: memoryview) -> Iterator[pa.RecordBatch]:
        """Takes a buffer of whole record batches and returns the Arrow batches that became full."""
        data = _array(batches)
        position = 0
        while True:
            found = self._kernels.index_batches(data, position, self._table)
            if not found:
                break
            table = self._table[:found]
            position = int(table[-1, self._kernels.END])
            yield from self._decode_all(data, table[table[:, self._kernels.ATTRIBUTES] & CONTROL == 0])
        if position != len(data):
            raise self._corrupt(self._range[0], f"{len(data) - position} bytes that are no whole batch")

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Returns the records that were fed and not yet returned, at most one Arrow batch."""
        if self._columns is not None and self._columns.rows:
            yield self._to_arrow(self._columns)
        self._columns = None

    def _decode_all(self, data: Array, table: Array) -> Iterator[pa.RecordBatch]:
        """Splits the batches into runs of compressed and of uncompressed ones and decodes each run."""
        compressed = table[:, self._kernels.ATTRIBUTES] & CODEC_MASK != 0
        edges = [0, *(np.flatnonzero(compressed[1:] != compressed[:-1]) + 1).tolist(), len(table)]
        for first, last in pairwise(edges):
            if last == first:
                continue
            if not compressed[first]:
                yield from self._decode_run(data, table[first:last])
                continue
            for decompressed in self._decompress(data, table[first:last].copy()):
                yield from self._decode_run(*decompressed)

    def _decompress(self, data: Array, table: Array) -> Iterator[tuple[Array, Array]]:
        """Decompresses batches and joins them, so that one kernel call decodes many. Returns pairs of data and
        table."""
        kernels = self._kernels
        bodies: list[Bytes] = []
        first = size = 0
        for index, row in enumerate(table):
            codec = int(row[kernels.ATTRIBUTES]) & CODEC_MASK
            try:
                body = decompress(codec, data[row[kernels.BEGIN] : row[kernels.END]].data, DECODED_BYTES_MAX)
            except CorruptBatch as error:
                raise self._corrupt(int(row[kernels.BASE_OFFSET]), str(error)) from None
            bodies.append(body)
            row[kernels.BEGIN], row[kernels.END] = size, size + len(body)
            size += len(body)
            if size >= _DECOMPRESSED_BYTES or index == len(table) - 1:
                whole = bodies[0] if len(bodies) == 1 else b"".join(bodies)
                yield _array(whole), table[first : index + 1]
                bodies, first, size = [], index + 1, 0

    def _decode_run(self, data: Array, table: Array) -> Iterator[pa.RecordBatch]:
        """Decodes uncompressed batches, as many at a time as fit into the current columns."""
        kernels = self._kernels
        sizes = table[:, kernels.END] - table[:, kernels.BEGIN]
        counts = table[:, kernels.COUNT]
        wrong = np.flatnonzero((counts < 0) | (counts * _RECORD_SIZE_MIN > sizes))
        if len(wrong):
            row = table[wrong[0]]
            reason = f"{row[kernels.COUNT]} records in {sizes[wrong[0]]} bytes"
            raise self._corrupt(int(row[kernels.BASE_OFFSET]), reason)
        rows_after, bytes_after = np.cumsum(counts), np.cumsum(sizes)
        first = 0
        while first < len(table):
            rows_before = int(rows_after[first - 1]) if first else 0
            bytes_before = int(bytes_after[first - 1]) if first else 0
            columns = self._columns
            rows_left, bytes_left = (columns.rows_left, columns.bytes_left) if columns else (ROWS_MAX, BYTES_MAX)
            last = min(
                int(np.searchsorted(rows_after, rows_before + rows_left, "right")),
                int(np.searchsorted(bytes_after, bytes_before + bytes_left, "right")),
            )
            if last <= first:
                if columns is not None and columns.rows:
                    yield self._to_arrow(columns)
                    self._columns = None
                    continue
                last = first + 1  # a batch larger than the limits gets an Arrow batch of its own
                columns = None
            rows, size = int(rows_after[last - 1]) - rows_before, int(bytes_after[last - 1]) - bytes_before
            if columns is None:
                columns = self._columns = _Columns(max(rows, ROWS_MAX), max(size, BYTES_MAX), self._wanted)
            self._copy(columns, data, table, first, last, size)
            first = last

    def _copy(self, columns: "_Columns", data: Array, table: Array, first: int, last: int, size: int) -> None:
        kernels = self._kernels
        table = np.ascontiguousarray(table)
        if self._wanted[2]:
            columns.make_room_for_headers(kernels.count_headers(data, table, first, last))
        done = kernels.decode_records(data, table, first, last, *self._range, *self._wanted, *columns.arrays)
        if done != last:
            raise self._corrupt(int(table[done, kernels.BASE_OFFSET]), "its records are not what its header says")
        columns.add_decoded_bytes(size)

    def _to_arrow(self, columns: "_Columns") -> pa.RecordBatch:
        rows = columns.rows
        arrays = [
            self._constants[name].repeat(rows) if name in self._constants else columns.to_arrow(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _corrupt(self, offset: int, reason: str) -> KafkaError:
        message = f"{self._place}: the batch with base offset {offset} cannot be read: {reason}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def _array(data: Bytes | memoryview) -> Array:
    return np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)  # frombuffer refuses an empty buffer


class _Constant:
    """A column with the same value in every row."""

    def __init__(self, value: str | int, kind: pa.DataType) -> None:
        self._scalar = pa.scalar(value, kind)
        self._column = pa.repeat(self._scalar, 0)

    def repeat(self, rows: int) -> pa.Array:
        if len(self._column) < rows:
            self._column = pa.repeat(self._scalar, max(rows, ROWS_MAX))
        return self._column.slice(0, rows)


class _Columns:
    """The buffers of one Arrow batch while it is filled, and how much of them is filled."""

    def __init__(self, rows: int, size: int, wanted: tuple[bool, ...]) -> None:
        keys, values, headers = wanted
        self._rows_max, self._bytes_max, self._taken = rows, size, 0
        self._tallies = np.zeros(6, np.int64)
        self._offsets, self._times = allocate_array(np.int64, rows), allocate_array(np.int64, rows)
        self._time_types = allocate_array(np.int32, rows)
        self._key = _Bytes(rows, size) if keys else _Bytes(0, 0)
        self._value = _Bytes(rows, size) if values else _Bytes(0, 0)
        self._header_ends = _ends(rows if headers else 0)
        self._name = _Bytes(0, size if headers else 0)
        self._content = _Bytes(0, size if headers else 0)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The buffers in the order of the parameters of `kernels.decode_records`."""
        return (
            self._tallies,
            self._offsets,
            self._times,
            self._time_types,
            self._key.ends,
            self._key.content,
            self._key.nulls,
            self._value.ends,
            self._value.content,
            self._value.nulls,
            self._header_ends,
            self._name.ends,
            self._name.content,
            self._content.ends,
            self._content.content,
            self._content.nulls,
        )

    @property
    def rows(self) -> int:
        return int(self._tallies[0])

    @property
    def rows_left(self) -> int:
        return self._rows_max - self.rows

    @property
    def bytes_left(self) -> int:
        return self._bytes_max - self._taken

    def add_decoded_bytes(self, size: int) -> None:
        self._taken += size

    def make_room_for_headers(self, count: int) -> None:
        entries = int(self._tallies[3]) + count
        if entries > len(self._name.nulls):
            self._name.grow(entries)
            self._content.grow(entries)

    def to_arrow(self, name: str) -> pa.Array:
        rows = self.rows
        if name == "key":
            return self._key.to_arrow(rows, pa.binary())
        if name == "value":
            return self._value.to_arrow(rows, pa.binary())
        if name == "headers":
            return self._headers(rows)
        numbers = {"offset": self._offsets, "timestamp": self._times, "timestampType": self._time_types}[name]
        return pa.Array.from_buffers(TYPES[name], rows, [None, pa.py_buffer(numbers)])

    def _headers(self, rows: int) -> pa.Array:
        """The headers column. A record without headers has null, as in Spark's connector."""
        entries = int(self._tallies[3])
        names = _replace_invalid_utf8(self._name.to_arrow(entries, pa.string(), nullable=False))
        contents = self._content.to_arrow(entries, pa.binary())
        pairs = pa.StructArray.from_arrays([names, contents], fields=list(_HEADER_TYPE.value_type))
        ends = self._header_ends[: rows + 1]
        return pa.Array.from_buffers(
            _HEADER_TYPE,
            rows,
            [_make_validity(ends[1:] == ends[:-1]), pa.py_buffer(self._header_ends)],
            children=[pairs],
        )


class _Bytes:
    """The buffers of a column of bytes: the end of each row, the bytes, and which rows are null."""

    def __init__(self, rows: int, size: int) -> None:
        self.ends = _ends(rows)
        self.content = allocate_array(np.uint8, size)
        self.nulls = allocate_array(np.uint8, rows)

    def grow(self, rows: int) -> None:
        rows = max(rows, 2 * len(self.nulls), 1024)
        ends, nulls = self.ends, self.nulls
        self.ends, self.nulls = _ends(rows), allocate_array(np.uint8, rows)
        self.ends[: len(ends)] = ends
        self.nulls[: len(nulls)] = nulls

    def to_arrow(self, rows: int, kind: pa.DataType, nullable: bool = True) -> pa.Array:
        validity = _make_validity(self.nulls[:rows]) if nullable else None
        return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(self.ends), pa.py_buffer(self.content)])


def _make_validity(nulls: Array) -> pa.Buffer | None:
    """Arrow's validity bitmap, or None if no row is null."""
    return pa.py_buffer(np.packbits(nulls == 0, bitorder="little")) if nulls.any() else None


def _replace_invalid_utf8(names: pa.Array) -> pa.Array:
    """Header names as valid UTF-8: invalid bytes become replacement characters, as in the Java client."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), len(names), names.buffers()).to_pylist()
        return pa.array([name.decode("utf-8", "replace") for name in raw], pa.string())
    return names


def _ends(rows: int) -> Array:
    """A buffer for the ends of `rows` rows, which starts with 0 as Arrow's offsets do."""
    ends = allocate_array(np.int32, rows + 1)
    ends[0] = 0
    return ends
