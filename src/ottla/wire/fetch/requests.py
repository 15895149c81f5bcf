"""Fetch requests to bytes and back."""

from struct import Struct
from struct import error as struct_error

from ottla.wire.fetch.messages import (
    COMPACT_FROM,
    DIRECTORY_FROM,
    HIGH_WATERMARK_FROM,
    HIGH_WATERMARK_UNSUPPORTED,
    LEADER_EPOCH_FROM,
    LOG_START_FROM,
    RACK_FROM,
    REPLICA_STATE_FROM,
    SESSION_FROM,
    TOPIC_ID_FROM,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    read_topic,
    write_topic,
)
from ottla.wire.frames import check_size
from ottla.wire.malformed import Malformed
from ottla.wire.primitives import (
    READ_ERRORS,
    ZERO_UUID,
    Bytes,
    Reader,
    Writer,
    reader,
    writer,
)

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
# The same of a follower, which sends its high watermark and its replica state in tags and no rack: from the partitions,
# or from the number of forgotten topics, to the end.
_FOLLOWER_PARTITION = Struct(">BiiqiqiBBBqB")
_FOLLOWER_END = Struct(">BBBBBiqB")
_FOLLOWER_CONSTANTS = (1, 1, 1, 1, _REPLICA_STATE.size + 1)


def read_request(version: int, buffer: Bytes, position: int = 0) -> FetchRequest:
    """The request in `buffer` from `position` to its end."""
    if version >= COMPACT_FROM:
        try:
            request = _read_single(version, buffer, position) or _read_single_of_follower(version, buffer, position)
        except READ_ERRORS:
            request = None  # another shape, or malformed: the general path finds out
        if request is not None:
            return request
    check_size(buffer)
    source = reader(memoryview(buffer), position, version >= COMPACT_FROM)
    try:
        return _read_request(version, source)
    except READ_ERRORS as error:
        raise Malformed(f"fetch request: {error}") from error


def _read_single(version: int, buffer: Bytes, position: int) -> FetchRequest | None:
    """Read a request for one partition, or one in a session that changes nothing: nearly all requests are such."""
    replica_id = -1
    if version < REPLICA_STATE_FROM:
        (replica_id,) = _REPLICA_ID.unpack_from(buffer, position)
        position += _REPLICA_ID.size
    wait, least, most, isolation, session_id, session_epoch, topics = _SINGLE_LIMITS.unpack_from(buffer, position)
    position += _SINGLE_LIMITS.size
    asked: list[FetchTopic] = []
    if topics == 2:
        end = position + 16 if version >= TOPIC_ID_FROM else position + buffer[position]
        (
            partitions,
            index,
            leader_epoch,
            offset,
            last_epoch,
            log_start,
            size,
            partition_tags,
            topic_tags,
            forgotten,
            rack,
        ) = _SINGLE_PARTITION.unpack_from(buffer, end)
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


def _read_single_of_follower(version: int, buffer: Bytes, position: int) -> FetchRequest | None:
    """Like `_read_single`, for the requests of a follower."""
    end = len(buffer) - _FOLLOWER_END.size
    *constants, replica_id, replica_epoch, state_tags = _FOLLOWER_END.unpack_from(buffer, end)
    if version < HIGH_WATERMARK_FROM or state_tags or tuple(constants) != _FOLLOWER_CONSTANTS:
        return None
    wait, least, most, isolation, session_id, session_epoch, topics = _SINGLE_LIMITS.unpack_from(buffer, position)
    position += _SINGLE_LIMITS.size
    asked: list[FetchTopic] = []
    if topics == 2:
        (
            partitions,
            index,
            leader_epoch,
            offset,
            last_epoch,
            log_start,
            size,
            partition_tags,
            tag,
            tag_size,
            high_watermark,
            topic_tags,
        ) = _FOLLOWER_PARTITION.unpack_from(buffer, position + 16)
        if (partitions, partition_tags, tag, tag_size, topic_tags) != (2, 1, 1, _HIGH_WATERMARK.size, 0):
            return None
        partition = FetchPartition(index, leader_epoch, offset, last_epoch, log_start, size, ZERO_UUID, high_watermark)
        asked.append(FetchTopic("", bytes(buffer[position : position + 16]), [partition]))
        position += 16 + _FOLLOWER_PARTITION.size
    if topics not in (1, 2) or position != end:
        return None
    return FetchRequest(replica_id, replica_epoch, wait, least, most, isolation, session_id, session_epoch, asked)


def _read_request(version: int, source: Reader) -> FetchRequest:
    request = FetchRequest()
    if version < REPLICA_STATE_FROM:
        (request.replica_id,) = source.fixed(_REPLICA_ID)
    request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = source.fixed(_LIMITS)
    if version >= SESSION_FROM:
        request.session_id, request.session_epoch = source.fixed(_SESSION)
    smallest = 3 if version >= COMPACT_FROM else 6
    for _ in range(source.count(smallest)):
        name, topic_id = read_topic(version, source)
        request.topics.append(FetchTopic(name, topic_id, _read_partitions(version, source)))
        source.skip_tags()
    if version >= SESSION_FROM:
        for _ in range(source.count(smallest)):
            name, topic_id = read_topic(version, source)
            request.forgotten.append(ForgottenTopic(name, topic_id, _read_indexes(source)))
            source.skip_tags()
    if version >= RACK_FROM:
        request.rack_id = source.string()
    for tag, content in source.tags():
        if tag == 0:
            request.cluster_id = content.nullable_string()
        elif tag == 1 and version >= REPLICA_STATE_FROM:
            request.replica_id, request.replica_epoch = content.fixed(_REPLICA_STATE)
            content.skip_tags()
    source.finish()
    return request


def _read_indexes(source: Reader) -> list[int]:
    return list(source.fixed(Struct(f">{source.count(4)}i")))


def _read_partitions(version: int, source: Reader) -> list[FetchPartition]:
    if version >= COMPACT_FROM:
        return _read_tagged_partitions(version, source)
    if version >= LEADER_EPOCH_FROM:
        rows = source.rows(_PARTITION_9)
        return [FetchPartition(index, epoch, offset, -1, start, size) for index, epoch, offset, start, size in rows]
    if version >= LOG_START_FROM:
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
            if tag == 0 and version >= DIRECTORY_FROM:
                partition.replica_directory_id = content.uuid()
            elif tag == 1 and version >= HIGH_WATERMARK_FROM:
                (partition.high_watermark,) = content.fixed(_HIGH_WATERMARK)
    return partitions


def write_request(version: int, request: FetchRequest, header: Bytes = b"") -> bytearray:
    """Encode a request. Returns `header` followed by the request."""
    target = writer(bytearray(header), version >= COMPACT_FROM)
    try:
        _write_request(version, request, target)
    except struct_error as error:
        raise ValueError(f"fetch request: {error}") from error
    return target.out


def _write_request(version: int, request: FetchRequest, target: Writer) -> None:
    if version < REPLICA_STATE_FROM:
        target.fixed(_REPLICA_ID, request.replica_id)
    target.fixed(_LIMITS, request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= SESSION_FROM:
        target.fixed(_SESSION, request.session_id, request.session_epoch)
    target.count(len(request.topics))
    for topic in request.topics:
        write_topic(version, topic.name, topic.topic_id, target)
        target.count(len(topic.partitions))
        for partition in topic.partitions:
            _write_partition(version, partition, target)
        target.tags(())
    if version >= SESSION_FROM:
        target.count(len(request.forgotten))
        for name, topic_id, indexes in request.forgotten:
            write_topic(version, name, topic_id, target)
            target.count(len(indexes))
            target.fixed(Struct(f">{len(indexes)}i"), *indexes)
            target.tags(())
    if version >= RACK_FROM:
        target.string(request.rack_id)
    target.tags(_request_tags(version, request))


def _request_tags(version: int, request: FetchRequest) -> list[tuple[int, Bytes]]:
    tags: list[tuple[int, Bytes]] = []
    if version >= COMPACT_FROM and request.cluster_id is not None:
        content = writer(bytearray(), True)
        content.string(request.cluster_id)
        tags.append((0, content.out))
    replica = (request.replica_id, request.replica_epoch)
    if version >= REPLICA_STATE_FROM and replica != (-1, -1):
        tags.append((1, _REPLICA_STATE.pack(*replica) + _NO_TAGS))
    return tags


def _write_partition(version: int, partition: FetchPartition, target: Writer) -> None:
    index, epoch, offset = partition.index, partition.current_leader_epoch, partition.fetch_offset
    start, size = partition.log_start_offset, partition.max_bytes
    if version >= COMPACT_FROM:
        target.fixed(_PARTITION_12, index, epoch, offset, partition.last_fetched_epoch, start, size)
        tags: list[tuple[int, Bytes]] = []
        if version >= DIRECTORY_FROM and partition.replica_directory_id != ZERO_UUID:
            tags.append((0, partition.replica_directory_id))
        if version >= HIGH_WATERMARK_FROM and partition.high_watermark != HIGH_WATERMARK_UNSUPPORTED:
            tags.append((1, _HIGH_WATERMARK.pack(partition.high_watermark)))
        target.tags(tags)
    elif version >= LEADER_EPOCH_FROM:
        target.fixed(_PARTITION_9, index, epoch, offset, start, size)
    elif version >= LOG_START_FROM:
        target.fixed(_PARTITION_5, index, offset, start, size)
    else:
        target.fixed(_PARTITION_4, index, offset, size)
