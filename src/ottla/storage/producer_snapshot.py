"""The file that keeps producers' state over a restart: Kafka's `<offset>.snapshot`.

    int16 version (1), uint32 CRC-32C of all that follows, int32 number of producers, then per producer
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta of the last batch,
    int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1

It is the state before the record at <offset>. One is written for each new segment, so that a segment can be recovered
on its own, and one at a clean close. Only the last batch of a producer is in it, as in Kafka.
"""

from collections.abc import Iterable
from struct import Struct, error

from ottla.records.batch import sequence_after
from ottla.records.checksum import crc32c
from ottla.storage.producer_state import AppendedBatch, ProducerState

_PREFIX = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_FROM = 6
_VERSION = 1


class CorruptSnapshot(Exception):
    """A snapshot file that is damaged. It is deleted, and the state is rebuilt from the log."""


def encode(producers: Iterable[ProducerState]) -> bytes:
    entries = [_encode_entry(producer) for producer in sorted(producers, key=lambda producer: producer.producer_id)]
    data = bytearray(_PREFIX.pack(_VERSION, 0, len(entries)) + b"".join(entries))
    _PREFIX.pack_into(data, 0, _VERSION, crc32c(memoryview(data)[_CRC_FROM:]), len(entries))
    return bytes(data)


def _encode_entry(producer: ProducerState) -> bytes:
    last = producer.batches[-1] if producer.batches else None
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        last.last_sequence if last else -1,
        last.last_offset if last else -1,
        last.last_offset - last.base_offset if last else 0,
        producer.timestamp,
        producer.coordinator_epoch,
        producer.transaction_start,
    )


def decode(data: bytes) -> list[ProducerState]:
    try:
        version, checksum, count = _PREFIX.unpack_from(data)
    except error:
        raise CorruptSnapshot(f"{len(data)} bytes are too few") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version}")
    if crc32c(memoryview(data)[_CRC_FROM:]) != checksum or len(data) != _PREFIX.size + count * _ENTRY.size:
        raise CorruptSnapshot("wrong checksum or length")
    return [_decode_entry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_PREFIX.size :])]


def _decode_entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> ProducerState:
    producer = ProducerState(producer_id, epoch)
    producer.is_partial = True
    producer.timestamp = timestamp
    producer.coordinator_epoch = coordinator_epoch
    producer.transaction_start = transaction_start
    if last_offset >= 0:
        first_sequence = sequence_after(last_sequence, -offset_delta) if last_sequence >= 0 else last_sequence
        first_offset = last_offset - offset_delta
        producer.batches.append(AppendedBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp))
    return producer
