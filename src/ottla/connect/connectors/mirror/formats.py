"""The records of MirrorMaker 2's internal topics, byte for byte, so that its own clients read what we write."""

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

import pyarrow as pa

from ottla.connect.data.columns import RawRecords
from ottla.topic_partition import TopicPartition

VERSION: Final = 0
_LENGTH: Final = Struct(">h")
_PARTITION: Final = Struct(">i")
_OFFSETS: Final = Struct(">qq")
_VERSIONED_OFFSETS: Final = Struct(">hqq")
_TIME: Final = Struct(">hq")

_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIMESTAMP: Final = pa.timestamp("us", "UTC")


class BadRecord(ValueError):
    """A record that has not MirrorMaker 2's format."""


@dataclass(frozen=True)
class OffsetSync:
    """A record of the map: the source's offset `upstream` is the target's offset `downstream`."""

    where: TopicPartition
    """In the source."""
    upstream: int
    downstream: int

    def encode(self) -> tuple[bytes, bytes]:
        key = _encode_text(self.where.topic) + _PARTITION.pack(self.where.partition)
        return key, _OFFSETS.pack(self.upstream, self.downstream)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> "OffsetSync":
        try:
            topic, at = _decode_text(key, 0)
            (partition,) = _PARTITION.unpack_from(key, at)
            return cls(TopicPartition(topic, partition), *_OFFSETS.unpack_from(value))
        except (StructError, UnicodeDecodeError):
            raise BadRecord("this is no offset sync of MirrorMaker 2") from None


@dataclass(frozen=True)
class Checkpoint:
    """Where a group of the source goes on in the target."""

    group: str
    where: TopicPartition
    """In the target."""
    upstream: int
    downstream: int
    metadata: str = ""

    def encode(self) -> tuple[bytes, bytes]:
        key = _encode_text(self.group) + _encode_text(self.where.topic) + _PARTITION.pack(self.where.partition)
        value = _VERSIONED_OFFSETS.pack(VERSION, self.upstream, self.downstream) + _encode_text(self.metadata)
        return key, value

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> "Checkpoint":
        try:
            group, at = _decode_text(key, 0)
            topic, at = _decode_text(key, at)
            (partition,) = _PARTITION.unpack_from(key, at)
            _, upstream, downstream = _VERSIONED_OFFSETS.unpack_from(value)
            metadata, _ = _decode_text(value, _VERSIONED_OFFSETS.size)
        except (StructError, UnicodeDecodeError):
            raise BadRecord("this is no checkpoint of MirrorMaker 2") from None
        return cls(group, TopicPartition(topic, partition), upstream, downstream, metadata)


def encode_heartbeat(source: str, target: str, timestamp_ms: int) -> tuple[bytes, bytes]:
    return _encode_text(source) + _encode_text(target), _TIME.pack(VERSION, timestamp_ms)


def to_raw(topic: str, records: list[tuple[bytes, bytes]], timestamp_ms: int) -> RawRecords:
    """Keys and values for the only partition of an internal topic."""
    count = len(records)
    columns = {
        "key": pa.array([key for key, _ in records], pa.binary()),
        "value": pa.array([value for _, value in records], pa.binary()),
        "timestamp": pa.array([timestamp_ms * 1000] * count, pa.int64()).cast(_TIMESTAMP),
        "partition": pa.array([0] * count, pa.int32()),
        "headers": pa.nulls(count, _HEADERS),
    }
    return RawRecords(topic, pa.record_batch(columns))


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _decode_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _LENGTH.unpack_from(data, at)
    begin = at + _LENGTH.size
    if size < 0 or begin + size > len(data):
        raise StructError("too short")
    return data[begin : begin + size].decode(), begin + size
