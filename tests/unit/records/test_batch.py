"""Record batches: they survive a round trip, damage is refused, and other implementations agree."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.records.batch import BatchHeader, CorruptBatch, Record
from ottla.records.compression import compress, decompress
from ottla.records.record import Fields, encode_varint, read_records, read_varint

RECORDS: list[Fields] = [
    (b"key", b"value", (("name", b"text"), ("empty", None)), 1_700_000_000_000),
    (None, b"", (), 1_700_000_000_005),
    (b"", None, (), 1_699_999_999_990),
]

ANY_RECORD = st.tuples(
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple),
    st.integers(min_value=0, max_value=2**43),
)


def with_header(data: bytearray, **fields: int) -> bytearray:
    """The same batch with other header fields and a correct checksum."""
    header = batch.read_header(data)._replace(**fields)
    changed = bytearray(batch._HEADER.pack(*header)) + data[batch.HEADER_SIZE :]
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return changed


@given(st.lists(ANY_RECORD, min_size=1, max_size=20), st.integers(0, 4), st.just(0) | st.integers(0, 2**62))
def test_records_survive_a_round_trip(records: list[Any], codec: int, base_offset: int) -> None:
    # Proves: encode and decode are inverse for every codec, and the header describes the records.
    data = batch.encode(records, base_offset=base_offset, codec=codec, leader_epoch=7)
    header = batch.check(data)
    assert (header.base_offset, header.record_count, header.codec) == (base_offset, len(records), codec)
    assert header.max_timestamp == max(record[3] for record in records)
    assert header.size == len(data) and header.leader_epoch == 7
    expected = [Record(base_offset + i, time, key, value, h) for i, (key, value, h, time) in enumerate(records)]
    assert batch.decode(data) == expected
    if base_offset == 0:
        assert batch.check_client_batch(data) == header


def test_records_with_offsets_keep_them() -> None:
    # Proves: a compacted batch has gaps and they survive; offsets that go back are refused.
    kept = [Record(10, 5, b"a", b"1"), Record(17, 4, b"b", b"2")]
    data = batch.encode(kept)
    assert batch.decode(data) == kept
    header = batch.check(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 17, 18)
    assert batch.read_header(batch.encode(kept, base_offset=8)).last_offset_delta == 9
    with pytest.raises(ValueError, match="does not follow"):
        batch.encode(reversed(kept))
    with pytest.raises(ValueError, match="at least one"):
        batch.encode([])


@pytest.mark.parametrize("codec", range(5))
def test_aiokafka_reads_what_we_write(codec: int) -> None:
    # Proves: another implementation finds the same records under a checksum it accepts.
    theirs = DefaultRecordBatch(bytes(batch.encode(RECORDS, base_offset=100, codec=codec)))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == [
        (100 + i, time, key, value, list(headers)) for i, (key, value, headers, time) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("codec", range(5))
def test_we_read_what_aiokafka_writes(codec: int) -> None:
    # Proves: a producer's bytes pass the checks and decode, whatever codec it chose.
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
        batch_size=1 << 20,
    )
    for index, (key, value, headers, time) in enumerate(RECORDS):
        builder.append(index, timestamp=time, key=key, value=value, headers=list(headers))
    data = bytes(builder.build())
    header = batch.check_client_batch(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 1, 4, 6)
    assert header.is_transactional and not header.is_control
    assert batch.decode(data) == [Record(i, time, k, v, h) for i, (k, v, h, time) in enumerate(RECORDS)]


def test_every_flipped_bit_is_noticed() -> None:
    # Proves: no single damaged bit outside the leader's own fields passes the check.
    sound = batch.encode(RECORDS)
    for position in range(len(sound)):
        if position < 8 or 12 <= position < 16:
            continue
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                batch.check(damaged)


def test_every_cut_is_noticed() -> None:
    # Proves: a torn batch is refused at every length, never read beyond its end.
    sound = batch.encode(RECORDS)
    for length in range(len(sound)):
        for read in (batch.check, batch.decode):
            with pytest.raises(CorruptBatch):
                read(sound[:length])
        with pytest.raises(KafkaError) as refused:
            batch.check_client_batch(sound[:length])
        assert refused.value.code == ErrorCode.INVALID_RECORD


def test_zeros_are_no_batch() -> None:
    # Proves: a preallocated tail is not taken for batches.
    with pytest.raises(CorruptBatch):
        batch.check(bytes(4096))


@given(st.binary(max_size=200), st.integers(0, 2**31 - 1), st.integers(0, 4))
def test_decode_survives_any_body(body: bytes, count: int, codec: int) -> None:
    # Proves: whatever the records' bytes are, decode raises CorruptBatch or returns, and claims cost no memory.
    data = with_header(
        batch.encode(RECORDS)[: batch.HEADER_SIZE] + body, length=49 + len(body), record_count=count, attributes=codec
    )
    try:
        records = batch.decode(data, max_bytes=1 << 20)
    except CorruptBatch:
        return
    assert len(records) == count


@given(st.data())
def test_decode_survives_damage(data: st.DataObject) -> None:
    # Proves: bytes changed within real records lead to CorruptBatch or to records, never to another exception.
    damaged = batch.encode(RECORDS)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(batch.HEADER_SIZE, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        batch.decode(damaged)


def test_decode_requires_the_right_number_of_records() -> None:
    # Proves: a record count that is too small or too large is damage.
    sound = batch.encode(RECORDS)
    for count in (0, 2, 4, -1):
        with pytest.raises(CorruptBatch):
            batch.decode(with_header(sound, record_count=count))


def test_a_record_is_as_long_as_it_says() -> None:
    # Proves: fields that end before the record does, or run into the next one, are damage.
    empty = b"\0\0\0\1\1\0"
    assert len(read_records(b"\x0c" + empty + b"\x0c" + empty, 2, 0, 0, None)) == 2
    for first in (b"\x0e" + empty, b"\x0a" + empty, b"\x0c\0\0\0\x04\1\0"):
        with pytest.raises(CorruptBatch):
            read_records(first + b"\x0c" + empty, 2, 0, 0, None)


def test_batches_in_a_row() -> None:
    # Proves: headers walks whole batches, leaves a cut one out, and stops hard at damage.
    rows = batch.encode(RECORDS, base_offset=0) + batch.encode(RECORDS, base_offset=3)
    size = len(rows) // 2
    assert [(at, header.base_offset) for at, header in batch.headers(rows)] == [(0, 0), (size, 3)]
    assert [at for at, _ in batch.headers(rows[:-1])] == [0]
    assert [at for at, _ in batch.headers(rows + bytes(60))] == [0, size]
    assert batch.check(rows, size).base_offset == 3
    assert batch.decode(rows, size)[0].offset == 3
    rows[size + 16] = 1
    with pytest.raises(CorruptBatch):
        list(batch.headers(rows))


def test_a_stamp_keeps_the_checksum() -> None:
    # Proves: offset and epoch can be written in place, through a view of a larger buffer too.
    frame = bytearray(10) + batch.encode(RECORDS)
    view = memoryview(frame)[10:]
    batch.stamp(view, 2**40, 12)
    header = batch.check(frame, 10)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (2**40, 12, 2**40 + 2)


@pytest.mark.parametrize("codec", range(5))
def test_append_time_replaces_all_timestamps(codec: int) -> None:
    # Proves: the time is changed without touching the records, and the checksum is right again.
    data = batch.encode(RECORDS, codec=codec)
    body = bytes(data[batch.HEADER_SIZE :])
    header = batch.set_append_time(data, 1_800_000_000_000)
    assert header == batch.check(data) and header.log_append_time and header.codec == codec
    assert header.base_timestamp == RECORDS[0][3] and header.max_timestamp == 1_800_000_000_000
    assert {record.timestamp for record in batch.decode(data)} == {1_800_000_000_000}
    assert data[batch.HEADER_SIZE :] == body


def test_control_markers() -> None:
    # Proves: the end of a transaction is encoded and decoded as in Kafka, and other control records are recognised.
    data = batch.encode_control(7, 3, True, 11, 1000)
    header = batch.check(data)
    assert header.is_control and header.is_transactional and header.base_sequence == -1 and header.record_count == 1
    assert batch.decode(data) == [Record(0, 1000, b"\0\0\0\1", b"\0\0\0\0\0\x0b")]
    assert batch.control_type(data) == (11, batch.COMMIT)
    assert batch.control_type(batch.encode_control(7, 3, False, 12, 1000)) == (12, batch.ABORT)
    assert batch.control_type(batch.encode([(b"\0\0\0\2", b"", (), 0)], control=True)) == (-1, 2)
    for key, value in ((None, b""), (b"\0\0", b""), (b"\0\0\0\1", None), (b"\0\0\0\0", b"\0\0")):
        with pytest.raises(CorruptBatch):
            batch.control_type(batch.encode([(key, value, (), 0)], control=True))


def test_sequences_wrap() -> None:
    # Proves: sequence numbers go from 2^31 - 1 to 0, and none stays none.
    def last(base_sequence: int, last_offset_delta: int) -> int:
        header = batch.read_header(batch.encode(RECORDS))
        return header._replace(base_sequence=base_sequence, last_offset_delta=last_offset_delta).last_sequence

    assert last(0, 4) == 4
    assert last(2**31 - 1, 0) == 2**31 - 1
    assert last(2**31 - 1, 1) == 0
    assert last(2**31 - 2, 4) == 2
    assert last(-1, 4) == -1


def test_a_delete_horizon_is_seen() -> None:
    # Proves: bit 6 of the attributes is what compaction leaves.
    assert BatchHeader._make(batch.read_header(batch.encode(RECORDS)))._replace(attributes=0x40).has_delete_horizon


IDEMPOTENT = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 2}, ErrorCode.INVALID_RECORD),
        ({"base_offset": 7}, ErrorCode.INVALID_RECORD),
        ({"base_offset": -7}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 7}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x30, **IDEMPOTENT}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x40}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 0x10}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({**IDEMPOTENT, "producer_epoch": -1}, ErrorCode.INVALID_RECORD),
        ({**IDEMPOTENT, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"magic": 0}, ErrorCode.INVALID_RECORD),
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"magic": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 48}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 2**31 - 1}, ErrorCode.INVALID_RECORD),
    ],
)
def test_batches_that_a_producer_may_not_send(fields: dict[str, int], code: ErrorCode) -> None:
    # Proves: each rule about a client's batch is enforced with Kafka's code, on a batch whose checksum is right.
    with pytest.raises(KafkaError) as refused:
        batch.check_client_batch(with_header(batch.encode(RECORDS), **fields))
    assert refused.value.code == code
    assert refused.value.message


@pytest.mark.parametrize("fields", [{}, IDEMPOTENT, {**IDEMPOTENT, "attributes": 0x10}, {"leader_epoch": 9}])
def test_batches_that_a_producer_may_send(fields: dict[str, int]) -> None:
    # Proves: plain, idempotent and transactional batches pass, and the client's idea of the epoch does not matter.
    batch.check_client_batch(with_header(batch.encode(RECORDS), **fields))


def broken_checksum(data: bytearray) -> bytearray:
    data[-1] ^= 1
    return data


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (broken_checksum, ErrorCode.CORRUPT_MESSAGE),
        (lambda data: broken_checksum(with_header(data, record_count=9)), ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data + data, ErrorCode.INVALID_RECORD),
        (lambda data: data + b"\0", ErrorCode.INVALID_RECORD),
        (lambda data: bytearray(), ErrorCode.INVALID_RECORD),
    ],
)
def test_a_producer_sends_exactly_one_valid_batch(change: Callable[[bytearray], bytearray], code: ErrorCode) -> None:
    # Proves: damage is retriable and comes first; two batches, trailing bytes and nothing at all are refused.
    with pytest.raises(KafkaError) as refused:
        batch.check_client_batch(change(batch.encode(RECORDS)))
    assert refused.value.code == code


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_are_zigzag(value: int) -> None:
    # Proves: numbers of either sign come back, in at most five bytes.
    written = encode_varint(value)
    assert read_varint(written, 0) == (value, len(written)) and len(written) <= 5


@pytest.mark.parametrize("data", [b"\xff" * 6, b"\x80\x80\x80\x80\x10", b"\xff\xff\xff\xff\x7f"])
def test_overlong_varints_are_damage(data: bytes) -> None:
    # Proves: neither an endless number nor one above 32 bits is read as something else.
    with pytest.raises(CorruptBatch):
        read_varint(data, 0)


@pytest.mark.parametrize("codec", range(5))
def test_a_recompressed_batch_has_the_same_records(codec: int) -> None:
    # Proves: only the codec, the length, the max timestamp and the checksum change.
    before = batch.encode(RECORDS, codec=1, producer_id=5, producer_epoch=0, base_sequence=0)
    header = batch.read_header(before)
    body = compress(codec, decompress(1, before[batch.HEADER_SIZE :], 10_000))
    after = batch.repack(header, codec, body, 99)
    expected = header._replace(length=len(after) - 12, attributes=codec, max_timestamp=99)
    assert batch.check(after)._replace(crc=0) == expected._replace(crc=0)
    assert batch.decode(after) == batch.decode(before)


def test_a_new_max_timestamp_leaves_the_batch_valid() -> None:
    # Proves: the header is changed in place, with a checksum that fits, and nothing else is.
    data = batch.encode(RECORDS)
    records = batch.decode(data)
    header = batch.set_max_timestamp(data, 12_345)
    assert header.max_timestamp == 12_345 and batch.check(data) == header
    assert batch.decode(data) == records
