"""Fetch, versions 4 to 18: requests and responses, both ways, written by hand because every record leaves this way.

    request     replica id (15: in tag 1, with its epoch), max wait, min bytes, max bytes, isolation level,
                7: session id, session epoch, topics [ name (13: id), partitions [ index, 9: current leader epoch,
                fetch offset, 12: last fetched epoch, 5: log start offset, max bytes, 17: tag 0, replica directory id,
                18: tag 1, high watermark ] ], 7: forgotten [ name (13: id), indexes ], 11: rack id,
                12: tag 0, cluster id
    response    throttle time, 7: error code, session id, topics [ name (13: id), partitions [ index, error code,
                high watermark, last stable offset, 5: log start offset, aborted transactions [ producer id,
                first offset ], 11: preferred read replica, records, 12: tag 0, diverging epoch, tag 1,
                current leader, tag 2, snapshot id ] ], 16: tag 0, node endpoints

Version 12 turned to the compact encoding. A response is written as a list of parts: the records stay slices of files
between the bytes around them, so that a connection can send them without Python ever seeing them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from ottla.storage.files import FileSlice
from ottla.wire.frames import check_size
from ottla.wire.malformed import Malformed
from ottla.wire.primitives import (
    READ_ERRORS,
    ZERO_UUID,
    Bytes,
    CompactWriter,
    NodeEndpoint,
    Reader,
    Writer,
    endpoints_field,
    reader,
    unsigned_varint,
    writer,
)
from ottla.wire.substitutes import substitute

VERSIONS = range(4, 19)
COMPACT_FROM = 12
TOPIC_ID_FROM = 13

_LOG_START_FROM = 5
_SESSION_FROM = 7
_LEADER_EPOCH_FROM = 9
_RACK_FROM = 11
_REPLICA_STATE_FROM = 15
_ENDPOINTS_FROM = 16
_DIRECTORY_FROM = 17
_HIGH_WATERMARK_FROM = 18

HIGH_WATERMARK_UNSUPPORTED = 2**63 - 1
"""What a follower that does not say its high watermark is taken to have said."""

_COPIED_BYTES_MAX = 4096


Part = Bytes | FileSlice
Records = Bytes | FileSlice | Sequence[FileSlice] | None


@dataclass(slots=True)
class FetchPartition:
    index: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 0
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = HIGH_WATERMARK_UNSUPPORTED


@dataclass(slots=True)
class FetchTopic:
    """A topic is named by its name below version 13, by its id from there on."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)


class ForgottenTopic(NamedTuple):
    """Partitions that leave a fetch session."""

    name: str
    topic_id: bytes
    indexes: list[int]


@dataclass(slots=True)
class FetchRequest:
    replica_id: int = -1
    replica_epoch: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2**31 - 1
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""
    cluster_id: str | None = None


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int


@dataclass(slots=True)
class PartitionResult:
    """What became of one partition. Absent records are written as no bytes, never as null: clients expect a set."""

    index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Records = None
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(slots=True)
class TopicResult:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class FetchResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    topics: list[TopicResult] = field(default_factory=list)
    node_endpoints: Sequence[NodeEndpoint] = ()


# --- request ---

_REPLICA_ID = Struct(">i")
_LIMITS = Struct(">iiib")
_SESSION = Struct(">ii")
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_PARTITION_12_AND_TAG_COUNT = Struct(">iiqiqiB")
_REPLICA_STATE = Struct(">iq")
_HIGH_WATERMARK = Struct(">q")
_NO_TAGS = b"\0"

# A request for one partition of one topic, or for all that its session knows: from the limits to the number of topics;
# from the partitions to the number of forgotten topics and the rack's length, with no tags on the way.
_SINGLE_LIMITS = Struct(">iiibiiB")
_SINGLE_PARTITION = Struct(">BiiqiqiBBBB")
_SINGLE_NONE = Struct(">BB")


def read_request(version: int, buffer: Bytes, position: int = 0) -> FetchRequest:
    """The request in `buffer` from `position` to its end."""
    if version >= COMPACT_FROM:
        try:
            request = _read_single(version, buffer, position)
        except READ_ERRORS:
            request = None  # not that shape, or not a request at all: the general way finds out which
        if request is not None:
            return request
    check_size(buffer)
    source = reader(memoryview(buffer), position, version >= COMPACT_FROM)
    try:
        return _read_request(version, source)
    except READ_ERRORS as error:
        raise Malformed(f"fetch request: {error}") from error


def _read_single(version: int, buffer: Bytes, position: int) -> FetchRequest | None:
    """What nearly all consumers of one partition send, and all that have a session and nothing new to ask."""
    replica_id = -1
    if version < _REPLICA_STATE_FROM:
        (replica_id,) = _REPLICA_ID.unpack_from(buffer, position)
        position += _REPLICA_ID.size
    wait, least, most, isolation, session_id, session_epoch, topics = _SINGLE_LIMITS.unpack_from(buffer, position)
    position += _SINGLE_LIMITS.size
    asked: list[FetchTopic] = []
    if topics == 2:
        end = position + 16 if version >= TOPIC_ID_FROM else position + buffer[position]
        (
            partitions, index, leader_epoch, offset, last_epoch, log_start, size, partition_tags, topic_tags, forgotten,
            rack,
        ) = _SINGLE_PARTITION.unpack_from(buffer, end)  # fmt: skip
        if partitions != 2 or partition_tags or topic_tags:
            return None
        topic = FetchTopic("", ZERO_UUID, [FetchPartition(index, leader_epoch, offset, last_epoch, log_start, size)])
        if version >= TOPIC_ID_FROM:
            topic.topic_id = bytes(buffer[position:end])
        elif 0 < buffer[position] < 0x80:
            topic.name = str(buffer[position + 1 : end], "utf-8")
        else:
            return None
        asked.append(topic)
        position = end + _SINGLE_PARTITION.size
    else:
        forgotten, rack = _SINGLE_NONE.unpack_from(buffer, position)
        position += _SINGLE_NONE.size
    end = position + rack - 1
    if topics > 2 or not topics or forgotten != 1 or not 0 < rack < 0x80 or end + 1 != len(buffer) or buffer[end]:
        return None
    rack_id = str(buffer[position:end], "utf-8") if rack > 1 else ""
    return FetchRequest(
        replica_id, -1, wait, least, most, isolation, session_id, session_epoch, asked, [], rack_id, None
    )


def _read_request(version: int, source: Reader) -> FetchRequest:
    request = FetchRequest()
    if version < _REPLICA_STATE_FROM:
        (request.replica_id,) = source.fixed(_REPLICA_ID)
    request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = source.fixed(_LIMITS)
    if version >= _SESSION_FROM:
        request.session_id, request.session_epoch = source.fixed(_SESSION)
    smallest = 3 if version >= COMPACT_FROM else 6
    for _ in range(source.count(smallest)):
        name, topic_id = _read_topic(version, source)
        request.topics.append(FetchTopic(name, topic_id, _read_partitions(version, source)))
        source.skip_tags()
    if version >= _SESSION_FROM:
        for _ in range(source.count(smallest)):
            name, topic_id = _read_topic(version, source)
            request.forgotten.append(ForgottenTopic(name, topic_id, _read_indexes(source)))
            source.skip_tags()
    if version >= _RACK_FROM:
        request.rack_id = source.string()
    for tag, content in source.tags():
        if tag == 0:
            request.cluster_id = content.nullable_string()
        elif tag == 1 and version >= _REPLICA_STATE_FROM:
            request.replica_id, request.replica_epoch = content.fixed(_REPLICA_STATE)
            content.skip_tags()
    source.finish()
    return request


def _read_topic(version: int, source: Reader) -> tuple[str, bytes]:
    return ("", source.uuid()) if version >= TOPIC_ID_FROM else (source.string(), ZERO_UUID)


def _read_indexes(source: Reader) -> list[int]:
    return list(source.fixed(Struct(f">{source.count(4)}i")))


def _read_partitions(version: int, source: Reader) -> list[FetchPartition]:
    if version >= COMPACT_FROM:
        return _read_tagged_partitions(version, source)
    if version >= _LEADER_EPOCH_FROM:
        rows = source.rows(_PARTITION_9)
        return [FetchPartition(index, epoch, offset, -1, start, size) for index, epoch, offset, start, size in rows]
    if version >= _LOG_START_FROM:
        rows = source.rows(_PARTITION_5)
        return [FetchPartition(index, -1, offset, -1, start, size) for index, offset, start, size in rows]
    rows = source.rows(_PARTITION_4)
    return [FetchPartition(index, -1, offset, -1, -1, size) for index, offset, size in rows]


def _read_tagged_partitions(version: int, source: Reader) -> list[FetchPartition]:
    partitions = []
    unpack, size = _PARTITION_12_AND_TAG_COUNT.unpack_from, _PARTITION_12_AND_TAG_COUNT.size
    for _ in range(source.count(size)):
        *fields, tag_count = unpack(source.view, source.position)
        partition = FetchPartition(*fields)
        partitions.append(partition)
        if tag_count == 0:
            source.position += size
            continue
        source.position += size - 1
        for tag, content in source.tags():
            if tag == 0 and version >= _DIRECTORY_FROM:
                partition.replica_directory_id = content.uuid()
            elif tag == 1 and version >= _HIGH_WATERMARK_FROM:
                (partition.high_watermark,) = content.fixed(_HIGH_WATERMARK)
    return partitions


def write_request(version: int, request: FetchRequest, header: Bytes = b"") -> bytearray:
    """The request after `header`."""
    target = writer(bytearray(header), version >= COMPACT_FROM)
    try:
        _write_request(version, request, target)
    except struct_error as error:
        raise ValueError(f"fetch request: {error}") from error
    return target.out


def _write_request(version: int, request: FetchRequest, target: Writer) -> None:
    if version < _REPLICA_STATE_FROM:
        target.fixed(_REPLICA_ID, request.replica_id)
    target.fixed(_LIMITS, request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= _SESSION_FROM:
        target.fixed(_SESSION, request.session_id, request.session_epoch)
    target.count(len(request.topics))
    for topic in request.topics:
        _write_topic(version, topic.name, topic.topic_id, target)
        target.count(len(topic.partitions))
        for partition in topic.partitions:
            _write_partition(version, partition, target)
        target.tags(())
    if version >= _SESSION_FROM:
        target.count(len(request.forgotten))
        for name, topic_id, indexes in request.forgotten:
            _write_topic(version, name, topic_id, target)
            target.count(len(indexes))
            target.fixed(Struct(f">{len(indexes)}i"), *indexes)
            target.tags(())
    if version >= _RACK_FROM:
        target.string(request.rack_id)
    target.tags(_request_tags(version, request))


def _request_tags(version: int, request: FetchRequest) -> list[tuple[int, Bytes]]:
    tags: list[tuple[int, Bytes]] = []
    if version >= COMPACT_FROM and request.cluster_id is not None:
        content = writer(bytearray(), True)
        content.string(request.cluster_id)
        tags.append((0, content.out))
    replica = (request.replica_id, request.replica_epoch)
    if version >= _REPLICA_STATE_FROM and replica != (-1, -1):
        tags.append((1, _REPLICA_STATE.pack(*replica) + _NO_TAGS))
    return tags


def _write_topic(version: int, name: str, topic_id: bytes, target: Writer) -> None:
    if version >= TOPIC_ID_FROM:
        target.uuid(topic_id)
    else:
        target.string(name)


def _write_partition(version: int, partition: FetchPartition, target: Writer) -> None:
    index, epoch, offset = partition.index, partition.current_leader_epoch, partition.fetch_offset
    start, size = partition.log_start_offset, partition.max_bytes
    if version >= COMPACT_FROM:
        target.fixed(_PARTITION_12, index, epoch, offset, partition.last_fetched_epoch, start, size)
        tags: list[tuple[int, Bytes]] = []
        if version >= _DIRECTORY_FROM and partition.replica_directory_id != ZERO_UUID:
            tags.append((0, partition.replica_directory_id))
        if version >= _HIGH_WATERMARK_FROM and partition.high_watermark != HIGH_WATERMARK_UNSUPPORTED:
            tags.append((1, _HIGH_WATERMARK.pack(partition.high_watermark)))
        target.tags(tags)
    elif version >= _LEADER_EPOCH_FROM:
        target.fixed(_PARTITION_9, index, epoch, offset, start, size)
    elif version >= _LOG_START_FROM:
        target.fixed(_PARTITION_5, index, offset, start, size)
    else:
        target.fixed(_PARTITION_4, index, offset, size)


# --- response ---

_THROTTLE_TIME = Struct(">i")
_SESSION_RESULT = Struct(">hi")
_RESULT_4 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_LOG_START = Struct(">q")
_PREFERRED_REPLICA = Struct(">i")
# Everything before the records if there is no list of aborted transactions, which is what most consumers ask for.
_UNCOMMITTED_12 = Struct(">ihqqqBi")
_ABORTED = Struct(">qq")
_DIVERGING_EPOCH = Struct(">iq")
_CURRENT_LEADER = Struct(">ii")
_SNAPSHOT_ID = Struct(">qi")


# One partition of one topic with nothing but records: from the throttle time to the topic, then to the records, and
# what follows them.
_SINGLE_HEAD = Struct(">ihiB")
_SINGLE_RESULT = Struct(">BihqqqBi")
_SINGLE_END = bytes(3)
_SINGLE_NOTHING = unsigned_varint(1) + _SINGLE_END


def write_response(version: int, response: FetchResponse, header: Bytes = b"") -> list[Part]:
    """The response after `header`, as parts to be sent one after the other; `total_length` says how long they are."""
    topics = response.topics
    if version >= COMPACT_FROM and len(topics) == 1 and len(topics[0].partitions) == 1:
        result = topics[0].partitions[0]
        records = result.records
        if (
            result.aborted_transactions is None
            and result.diverging_epoch is None
            and result.current_leader is None
            and result.snapshot_id is None
            and not response.node_endpoints
            and (records is None or isinstance(records, FileSlice))
        ):
            return _write_single(version, response, topics[0], result, records, header)
    target = writer(bytearray(header), version >= COMPACT_FROM)
    parts: list[Part] = []
    try:
        target.fixed(_THROTTLE_TIME, response.throttle_time_ms)
        if version >= _SESSION_FROM:
            target.fixed(_SESSION_RESULT, response.error_code, response.session_id)
        target.count(len(response.topics))
        for topic in response.topics:
            _write_topic(version, topic.name, topic.topic_id, target)
            target.count(len(topic.partitions))
            for result in topic.partitions:
                _write_result(version, result, target, parts)
            target.tags(())
        tagged = version >= _ENDPOINTS_FROM and response.node_endpoints
        target.tags([(0, endpoints_field(response.node_endpoints))] if tagged else ())
    except struct_error as error:
        raise ValueError(f"fetch response: {error}") from error
    if target.out:
        parts.append(target.out)
    return parts


def _write_single(
    version: int, response: FetchResponse, topic: TopicResult, result: PartitionResult, records: FileSlice | None,
    header: Bytes,
) -> list[Part]:  # fmt: skip
    out = bytearray(header)
    try:
        out += _SINGLE_HEAD.pack(response.throttle_time_ms, response.error_code, response.session_id, 2)
        if version >= TOPIC_ID_FROM:
            CompactWriter(out).uuid(topic.topic_id)
        else:
            name = topic.name.encode()
            out += unsigned_varint(len(name) + 1)
            out += name
        out += _SINGLE_RESULT.pack(
            2, result.index, result.error_code, result.high_watermark, result.last_stable_offset,
            result.log_start_offset, 0, result.preferred_read_replica,
        )  # fmt: skip
    except struct_error as error:
        raise ValueError(f"fetch response: {error}") from error
    if records is None or not records.length:
        out += _SINGLE_NOTHING
        return [out]
    out += unsigned_varint(records.length + 1)
    return [out, records, _SINGLE_END]


def total_length(parts: Sequence[Part]) -> int:
    return sum([part.length if isinstance(part, FileSlice) else len(part) for part in parts])


def _write_result(version: int, result: PartitionResult, target: Writer, parts: list[Part]) -> None:
    if version < COMPACT_FROM:
        _write_classic_result(version, result, target)
        _write_records(result.records, target, parts)
        return
    offsets = (result.high_watermark, result.last_stable_offset, result.log_start_offset)
    if result.aborted_transactions is None:
        target.out += _UNCOMMITTED_12.pack(result.index, result.error_code, *offsets, 0, result.preferred_read_replica)
    else:
        target.fixed(_RESULT_5, result.index, result.error_code, *offsets)
        _write_aborted(result.aborted_transactions, target)
        target.fixed(_PREFERRED_REPLICA, result.preferred_read_replica)
    _write_records(result.records, target, parts)
    target.tags(_result_tags(result))


def _write_classic_result(version: int, result: PartitionResult, target: Writer) -> None:
    code = substitute("FetchResponse", version, result.error_code)
    target.fixed(_RESULT_4, result.index, code, result.high_watermark, result.last_stable_offset)
    if version >= _LOG_START_FROM:
        target.fixed(_LOG_START, result.log_start_offset)
    if result.aborted_transactions is None:
        target.count(None)
    else:
        _write_aborted(result.aborted_transactions, target)
    if version >= _RACK_FROM:
        target.fixed(_PREFERRED_REPLICA, result.preferred_read_replica)


def _write_aborted(aborted: Sequence[AbortedTransaction], target: Writer) -> None:
    target.count(len(aborted))
    for producer_id, first_offset in aborted:
        target.fixed(_ABORTED, producer_id, first_offset)
        target.tags(())


def _write_records(records: Records, target: Writer, parts: list[Part]) -> None:
    if records is None:
        target.count(0)
        return
    if isinstance(records, bytes | bytearray | memoryview):
        target.count(len(records))
        if len(records) <= _COPIED_BYTES_MAX:
            target.out += records
            return
        stretches: list[Part] = [records]
    else:
        slices = (records,) if isinstance(records, FileSlice) else records
        target.count(sum([piece.length for piece in slices]))
        stretches = [piece for piece in slices if piece.length]
    if stretches:
        parts.append(target.out)
        parts += stretches
        target.out = bytearray()


def _result_tags(result: PartitionResult) -> list[tuple[int, Bytes]]:
    tags: list[tuple[int, Bytes]] = []
    if result.diverging_epoch is not None:
        tags.append((0, _DIVERGING_EPOCH.pack(*result.diverging_epoch) + _NO_TAGS))
    if result.current_leader is not None:
        tags.append((1, _CURRENT_LEADER.pack(*result.current_leader) + _NO_TAGS))
    if result.snapshot_id is not None:
        tags.append((2, _SNAPSHOT_ID.pack(*result.snapshot_id) + _NO_TAGS))
    return tags


def read_response(version: int, buffer: Bytes, position: int = 0) -> FetchResponse:
    """The response in `buffer` from `position` to its end; its records are views into `buffer`."""
    source = reader(memoryview(buffer), position, version >= COMPACT_FROM)
    try:
        return _read_response(version, source)
    except READ_ERRORS as error:
        raise Malformed(f"fetch response: {error}") from error


def _read_response(version: int, source: Reader) -> FetchResponse:
    (throttle_time_ms,) = source.fixed(_THROTTLE_TIME)
    error_code, session_id = source.fixed(_SESSION_RESULT) if version >= _SESSION_FROM else (0, 0)
    response = FetchResponse(throttle_time_ms, error_code, session_id)
    for _ in range(source.count(3 if version >= COMPACT_FROM else 6)):
        topic = TopicResult(*_read_topic(version, source))
        for _ in range(source.count(_RESULT_4.size)):
            topic.partitions.append(_read_result(version, source))
        source.skip_tags()
        response.topics.append(topic)
    for tag, content in source.tags():
        if tag == 0 and version >= _ENDPOINTS_FROM:
            response.node_endpoints = content.endpoints()
    source.finish()
    return response


def _read_result(version: int, source: Reader) -> PartitionResult:
    result = PartitionResult(*source.fixed(_RESULT_5 if version >= _LOG_START_FROM else _RESULT_4))
    count = source.nullable_count(_ABORTED.size)
    if count is not None:
        aborted = []
        for _ in range(count):
            aborted.append(AbortedTransaction(*source.fixed(_ABORTED)))
            source.skip_tags()
        result.aborted_transactions = aborted
    if version >= _RACK_FROM:
        (result.preferred_read_replica,) = source.fixed(_PREFERRED_REPLICA)
    result.records = source.records()
    for tag, content in source.tags():
        if tag == 0:
            result.diverging_epoch = EpochEndOffset(*content.fixed(_DIVERGING_EPOCH))
            content.skip_tags()
        elif tag == 1:
            result.current_leader = LeaderIdAndEpoch(*content.fixed(_CURRENT_LEADER))
            content.skip_tags()
        elif tag == 2:
            result.snapshot_id = SnapshotId(*content.fixed(_SNAPSHOT_ID))
            content.skip_tags()
    return result
