"""Record batch v2: the one format that disk, wire and replication share.

A batch is a header of 61 bytes, big-endian, and the records, compressed together if the attributes name a codec:

    offset size  field                 covered by the CRC
         0    8  base offset           no: the leader writes it when it appends
         8    4  length                no: bytes that follow this field
        12    4  leader epoch          no: the leader writes it when it appends
        16    1  magic                 no: always 2
        17    4  CRC-32C               of everything from the attributes to the end
        21    2  attributes            bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
        23    4  last offset delta
        27    8  base timestamp
        35    8  max timestamp
        43    8  producer id
        51    2  producer epoch
        53    4  base sequence
        57    4  record count

record.py has the layout of the records. What a producer may send is checked by `check_client_batch`;
what was read back from a disk or another broker by `check`.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.checksum import crc32c
from ottla.records.compression import CorruptBatch as CorruptBatch
from ottla.records.compression import compress, decompress
from ottla.records.record import Fields, read_records, write_record
from ottla.records.record import Record as Record

Bytes = bytes | bytearray | memoryview
Writable = bytearray | memoryview

HEADER_SIZE = 61
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

ABORT = 0
COMMIT = 1

DECODED_BYTES_MAX = 100 * 1024 * 1024
"""Limit of a decompressed batch: the default of socket.request.max.bytes, the largest request of a broker."""

_HEADER = Struct(">qiibIhiqqqhii")
_BASE_OFFSET = Struct(">q")
_LENGTH = Struct(">i")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")

_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35

_PREFIX_SIZE = 12
"""Size of base offset and length. The length field counts the bytes after them."""

_LENGTH_MIN = HEADER_SIZE - _PREFIX_SIZE
_SEQUENCE_MAX = 2**31 - 1
_CODEC_MAX = 4
_NOT_FOR_CLIENTS = LOG_APPEND_TIME | CONTROL | DELETE_HORIZON


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + _PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def log_append_time(self) -> bool:
        """Whether the timestamp of all records is the time of the append, which is the max timestamp."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time after which compaction may remove tombstones and markers."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return self.base_sequence
        return sequence_after(self.base_sequence, self.last_offset_delta)


class ControlMarker(NamedTuple):
    """The content of a control record that ends a transaction."""

    coordinator_epoch: int
    type: int


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` after this one. Sequence numbers wrap from 2^31 - 1 to 0."""
    return (sequence + count) & _SEQUENCE_MAX


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`. CorruptBatch if it is none. The records are not checked."""
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptBatch(f"{len(buffer) - position} bytes at {position} are too few for a batch header")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptBatch(f"batch at {position} has magic {header.magic}")
    if header.length < _LENGTH_MIN:
        raise CorruptBatch(f"batch at {position} has length {header.length}")
    return header


def check(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`. CorruptBatch if the batch is incomplete or its checksum is wrong."""
    header = read_header(buffer, position)
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(f"batch at {position} needs {header.size} bytes, {len(buffer) - position} are there")
    if crc32c(memoryview(buffer)[position + _ATTRIBUTES_AT : end]) != header.crc:
        raise CorruptBatch(f"batch at {position} with base offset {header.base_offset} fails its checksum")
    return header


def is_intact(header: BatchHeader, batch: memoryview) -> bool:
    """Whether the checksum of a whole batch is right."""
    return crc32c(batch[_ATTRIBUTES_AT:]) == header.crc


def headers(buffer: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch. An incomplete batch at the end of a fetch answer is ignored."""
    position = 0
    while len(buffer) - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if position + header.size > len(buffer):
            return
        yield position, header
        position += header.size


def stamp(buffer: Writable, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch. The checksum does not cover them."""
    _BASE_OFFSET.pack_into(buffer, 0, base_offset)
    _LEADER_EPOCH.pack_into(buffer, _LEADER_EPOCH_AT, leader_epoch)


def set_append_time(buffer: Writable, now_ms: int) -> BatchHeader:
    """Switch the batch to LogAppendTime. The records keep their bytes; the checksum is computed again."""
    header = read_header(buffer)
    _ATTRIBUTES.pack_into(buffer, _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_AT, now_ms)
    _seal(buffer, header.size)
    return read_header(buffer)


def set_max_timestamp(buffer: Writable, max_timestamp: int) -> BatchHeader:
    """Correct the max timestamp in the header. The checksum is computed again."""
    _MAX_TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_AT, max_timestamp)
    header = read_header(buffer)
    _seal(buffer, header.size)
    return read_header(buffer)


def repack(header: BatchHeader, codec: int, body: Bytes, max_timestamp: int) -> bytearray:
    """The batch with this header and the same records in another codec. `body` are the recompressed records."""
    packed = bytearray(HEADER_SIZE)
    packed += body
    fresh = header._replace(
        length=len(packed) - _PREFIX_SIZE,
        attributes=header.attributes & ~CODEC_MASK | codec,
        max_timestamp=max_timestamp,
    )
    _HEADER.pack_into(packed, 0, *fresh)
    _seal(packed, len(packed))
    return packed


def _seal(buffer: Writable, size: int) -> None:
    with memoryview(buffer) as view:
        checksum = crc32c(view[_ATTRIBUTES_AT:size])
    _CRC.pack_into(buffer, _CRC_AT, checksum)


def has_transactional_flag(buffer: Bytes) -> bool:
    """Whether a batch that nobody has checked yet says that it is part of a transaction."""
    return len(buffer) >= HEADER_SIZE and bool(_ATTRIBUTES.unpack_from(buffer, _ATTRIBUTES_AT)[0] & TRANSACTIONAL)


def check_client_batch(buffer: Bytes) -> BatchHeader:
    """Check what a producer sent for one partition: exactly one batch, of a kind that a client may write.

    Raises KafkaError with the code that Kafka sends. The checksum is checked before the fields that it covers: a batch
    that was damaged on its way is worth a retry, a wrong one is not. The records are not checked.
    """
    size = len(buffer)
    if size < HEADER_SIZE:
        raise _explain_unreadable(buffer)
    fields = _HEADER.unpack_from(buffer)
    # Every batch passes here: local names cost a third of the attributes of a named tuple.
    base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer, epoch, sequence, count = fields
    header = BatchHeader._make(fields)
    if length + _PREFIX_SIZE != size or magic != MAGIC:
        raise _explain_unreadable(buffer)
    if crc32c(memoryview(buffer)[_ATTRIBUTES_AT:]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "The record batch fails its checksum")
    if (
        base_offset
        or last_delta + 1 != count
        or count < 1
        or attributes & CODEC_MASK > _CODEC_MAX
        or attributes & _NOT_FOR_CLIENTS
    ):
        raise _explain_broken_rule(header)
    if producer >= 0:
        if epoch < 0 or sequence < 0:
            raise _explain_broken_rule(header)
    elif attributes & TRANSACTIONAL:
        raise _explain_broken_rule(header)
    return header


def _explain_unreadable(buffer: Bytes) -> KafkaError:
    """Why these bytes are not exactly one batch of format 2. Older formats have the magic at the same position."""
    size = len(buffer)
    if size <= _MAGIC_AT:
        return KafkaError(ErrorCode.INVALID_RECORD, "There must be a record batch for each partition")
    magic = buffer[_MAGIC_AT]
    if magic < MAGIC:
        return KafkaError(ErrorCode.INVALID_RECORD, f"Record batches must have magic 2, this one has {magic}")
    if magic > MAGIC:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"No record batch has magic {magic}")
    (length,) = _LENGTH.unpack_from(buffer, _LENGTH_AT)
    if length < _LENGTH_MIN:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"No record batch has length {length}")
    if length + _PREFIX_SIZE > size:
        return KafkaError(ErrorCode.INVALID_RECORD, f"The record batch has {size} of {length + _PREFIX_SIZE} bytes")
    return KafkaError(ErrorCode.INVALID_RECORD, "There must be exactly one record batch for each partition")


def _explain_broken_rule(header: BatchHeader) -> KafkaError:
    """Which rule for batches of producers the header breaks."""
    if header.base_offset:
        return KafkaError(
            ErrorCode.INVALID_RECORD, f"The base offset of a producer's batch must be 0, not {header.base_offset}"
        )
    if header.record_count < 1 or header.last_offset_delta + 1 != header.record_count:
        message = f"{header.record_count} records do not fit the last offset delta {header.last_offset_delta}"
        return KafkaError(ErrorCode.INVALID_RECORD, message)
    if header.is_control:
        return KafkaError(ErrorCode.INVALID_RECORD, "Clients may not write control records")
    if header.codec > _CODEC_MAX:
        return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no codec {header.codec}")
    if header.log_append_time:
        return KafkaError(ErrorCode.INVALID_TIMESTAMP, "Producers may not set the timestamp type to LogAppendTime")
    if header.has_delete_horizon:
        return KafkaError(ErrorCode.INVALID_RECORD, "Clients may not set a delete horizon")
    if header.producer_id < 0:
        return KafkaError(ErrorCode.INVALID_RECORD, "A transactional batch must carry a producer id")
    message = f"Producer id {header.producer_id} with epoch {header.producer_epoch}, sequence {header.base_sequence}"
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def encode(
    records: Iterable[Fields | Record],
    *,
    base_offset: int | None = None,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    log_append_time: bool = False,
) -> bytearray:
    """Encode a batch of `(key, value, headers, timestamp)` at consecutive offsets, or of `Record`s at their own."""
    flags = transactional * TRANSACTIONAL | control * CONTROL | log_append_time * LOG_APPEND_TIME
    batch = bytearray(HEADER_SIZE)
    body = batch if codec == 0 else bytearray()
    first_offset = base_offset
    count, base_timestamp, max_timestamp, offset = 0, -1, -1, -1
    for record in records:
        if isinstance(record, Record):
            record_offset, timestamp, key, value, record_headers = record
        else:
            key, value, record_headers, timestamp = record
            record_offset = offset + 1 if count else first_offset or 0
        if not count:
            base_timestamp = max_timestamp = timestamp
        if first_offset is None:
            first_offset = record_offset
        if record_offset < first_offset or (count and record_offset <= offset):
            raise ValueError(f"record offset {record_offset} does not follow")
        offset = record_offset
        max_timestamp = max(max_timestamp, timestamp)
        write_record(body, timestamp - base_timestamp, offset - first_offset, key, value, record_headers)
        count += 1
    if first_offset is None or not count:
        raise ValueError("a batch needs at least one record")
    if body is not batch:
        batch += compress(codec, body)
    _HEADER.pack_into(
        batch,
        0,
        first_offset,
        len(batch) - _PREFIX_SIZE,
        leader_epoch,
        MAGIC,
        0,
        codec | flags,
        offset - first_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    _seal(batch, len(batch))
    return batch


def seal_client_batch(
    buffer: Writable,
    record_count: int,
    timestamp: int,
    *,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    timestamp_max: int | None = None,
) -> None:
    """Write the header of a producer's batch into the room before its records. `timestamp` is that of the first record;
    without `timestamp_max` all records have it."""
    size = len(buffer)
    _HEADER.pack_into(
        buffer,
        0,
        0,
        size - _PREFIX_SIZE,
        -1,
        MAGIC,
        0,
        codec | transactional * TRANSACTIONAL,
        record_count - 1,
        timestamp,
        timestamp if timestamp_max is None else timestamp_max,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _seal(buffer, size)


def decode(buffer: Bytes, position: int = 0, *, max_bytes: int = DECODED_BYTES_MAX) -> list[Record]:
    """The records of the batch at `position`. CorruptBatch if they do not fit the header."""
    header = read_header(buffer, position)
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(f"batch at {position} needs {header.size} bytes, {len(buffer) - position} are there")
    body = memoryview(buffer)[position + HEADER_SIZE : end]
    data = bytes(body) if header.codec == 0 else decompress(header.codec, body, max_bytes)
    append_time = header.max_timestamp if header.log_append_time else None
    return read_records(data, header.record_count, header.base_offset, header.base_timestamp, append_time)


def encode_control(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """The marker that ends a transaction: a control batch of one record."""
    key = _CONTROL_KEY.pack(0, COMMIT if commit else ABORT)
    value = _CONTROL_VALUE.pack(0, coordinator_epoch)
    return encode(
        [(key, value, (), timestamp)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(buffer: Bytes, position: int = 0) -> ControlMarker:
    """The type of a control batch: ABORT or COMMIT with the coordinator epoch; other types have the epoch -1."""
    records = decode(buffer, position)
    if not records or records[0].key is None or len(records[0].key) < _CONTROL_KEY.size:
        raise CorruptBatch(f"control batch at {position} has no control key")
    _, kind = _CONTROL_KEY.unpack_from(records[0].key)
    if kind not in (ABORT, COMMIT):
        return ControlMarker(-1, kind)
    value = records[0].value
    if value is None or len(value) < _CONTROL_VALUE.size:
        raise CorruptBatch(f"control batch at {position} has no coordinator epoch")
    return ControlMarker(_CONTROL_VALUE.unpack_from(value)[1], kind)
