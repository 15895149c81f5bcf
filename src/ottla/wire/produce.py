"""Produce, versions 3 to 13: requests and responses to bytes and back, by hand because all records come this way.

    request     transactional id, acks, timeout, topics [ name or id, partitions [ index, records ] ]
    response    topics [ name or id, partitions [ index, error code, base offset, append time,
                5: log start offset, 8: record errors [ batch index, message ], error message,
                10: tag 0, current leader ] ], throttle time, 10: tag 0, node endpoints

The encoding is compact from version 9 on, and 13 names topics by id only. Records are views of the frame, not copies.
Nearly every request has one topic with one partition: it is read with one or two `struct` calls, and so is its answer
written (the `single` functions). All other requests take the general path, which also finds out what is wrong with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as struct_error

from ottla.wire.malformed import Malformed
from ottla.wire.primitives import (
    READ_ERRORS,
    ZERO_UUID,
    Bytes,
    NodeEndpoint,
    Reader,
    Writer,
    encode_endpoints,
    read_unsigned_varint,
    reader,
    unsigned_varint,
    writer,
)
from ottla.wire.substitutes import substitute

VERSIONS = range(3, 14)
COMPACT_FROM = 9
TOPIC_ID_FROM = 13

_LOG_START_FROM = 5
_RECORD_ERRORS_FROM = 8
LEADER_FROM = 10


@dataclass(slots=True)
class PartitionData:
    index: int
    records: memoryview | None


@dataclass(slots=True)
class TopicData:
    """A topic has a name below version 13, and an id from there on."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


class Measured:
    """A request whose size is noted while producers have quotas. Otherwise the attribute is not there."""

    __slots__ = ("frame_bytes",)

    frame_bytes: int


@dataclass(slots=True)
class ProduceRequest(Measured):
    transactional_id: str | None = None
    acks: int = -1
    timeout_ms: int = 0
    topics: list[TopicData] = field(default_factory=list)


@dataclass(slots=True)
class PartitionResult:
    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    """The records of the batch that were refused, and why."""
    error_message: str | None = None
    current_leader_id: int = -1
    current_leader_epoch: int = -1


@dataclass(slots=True)
class TopicResult:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class ProduceResponse:
    topics: list[TopicResult] = field(default_factory=list)
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


# --- request, read ---

# The bytes before the partitions if the transactional id is null: its length, acks, timeout, topics, the length of the
# topic's name or the topic's id.
_SINGLE_HEAD = Struct(">hhiih")
_SINGLE_COMPACT_HEAD = Struct(">BhiBB")
_SINGLE_ID_HEAD = Struct(">BhiB16s")
# The bytes between the topic and the records: partitions, index, and in classic versions the length of the records.
_SINGLE_PARTITION = Struct(">iii")
_SINGLE_COMPACT_PARTITION = Struct(">Bi")
# The records of a compact request are followed by the tagged fields of partition, topic and request: none.
_NO_TAGS_AT_ALL = b"\0\0\0"

_ACKS_AND_TIMEOUT = Struct(">hi")
_INDEX = Struct(">i")


def read_request(version: int, buffer: Bytes, position: int = 0) -> ProduceRequest:
    """The request in `buffer` from `position` to its end; its records are views into `buffer`."""
    compact = version >= COMPACT_FROM
    try:
        request = _read_single_compact(version, buffer, position) if compact else _read_single(buffer, position)
    except (Malformed, *READ_ERRORS):
        request = None  # another shape, or malformed: the general path finds out
    if request is not None:
        return request
    try:
        return _read_request(version, reader(memoryview(buffer), position, compact))
    except READ_ERRORS as error:
        raise Malformed(f"produce request: {error}") from error


def _read_single(buffer: Bytes, position: int) -> ProduceRequest | None:
    id_length, acks, timeout_ms, topics, name_length = _SINGLE_HEAD.unpack_from(buffer, position)
    if id_length != -1 or topics != 1 or name_length < 0:
        return None
    start = position + _SINGLE_HEAD.size
    end = start + name_length
    partitions, index, length = _SINGLE_PARTITION.unpack_from(buffer, end)
    records = end + _SINGLE_PARTITION.size
    if partitions != 1 or length < 0 or records + length != len(buffer):
        return None
    partition = PartitionData(index, memoryview(buffer)[records:])
    return ProduceRequest(None, acks, timeout_ms, [TopicData(str(buffer[start:end], "utf-8"), ZERO_UUID, [partition])])


def _read_single_compact(version: int, buffer: Bytes, position: int) -> ProduceRequest | None:
    if version >= TOPIC_ID_FROM:
        id_length, acks, timeout_ms, topics, topic_id = _SINGLE_ID_HEAD.unpack_from(buffer, position)
        name = ""
        end = position + _SINGLE_ID_HEAD.size
    else:
        id_length, acks, timeout_ms, topics, name_length = _SINGLE_COMPACT_HEAD.unpack_from(buffer, position)
        if not 0 < name_length < 0x80:
            return None
        start = position + _SINGLE_COMPACT_HEAD.size
        end = start + name_length - 1
        name, topic_id = str(buffer[start:end], "utf-8"), ZERO_UUID
    partitions, index = _SINGLE_COMPACT_PARTITION.unpack_from(buffer, end)
    if id_length != 0 or topics != 2 or partitions != 2:
        return None
    length, records = read_unsigned_varint(buffer, end + _SINGLE_COMPACT_PARTITION.size)
    tail = records + length - 1
    if length == 0 or buffer[tail:] != _NO_TAGS_AT_ALL:
        return None
    partition = PartitionData(index, memoryview(buffer)[records:tail])
    return ProduceRequest(None, acks, timeout_ms, [TopicData(name, topic_id, [partition])])


def _read_request(version: int, source: Reader) -> ProduceRequest:
    transactional_id = source.nullable_string()
    acks, timeout_ms = source.fixed(_ACKS_AND_TIMEOUT)
    request = ProduceRequest(transactional_id, acks, timeout_ms)
    compact = version >= COMPACT_FROM
    for _ in range(source.count(3 if compact else 6)):
        topic = TopicData()
        if version >= TOPIC_ID_FROM:
            topic.topic_id = source.uuid()
        else:
            topic.name = source.string()
        for _ in range(source.count(6 if compact else 8)):
            (index,) = source.fixed(_INDEX)
            topic.partitions.append(PartitionData(index, source.records()))
            source.skip_tags()
        source.skip_tags()
        request.topics.append(topic)
    source.skip_tags()
    source.finish()
    return request


# --- request, written ---


def write_request(version: int, request: ProduceRequest, header: Bytes = b"") -> bytearray:
    """Encode a request. Returns `header` followed by the request."""
    target = writer(bytearray(header), version >= COMPACT_FROM)
    try:
        _write_request(version, request, target)
    except struct_error as error:
        raise ValueError(f"produce request: {error}") from error
    return target.out


def _write_request(version: int, request: ProduceRequest, target: Writer) -> None:
    target.string(request.transactional_id)
    target.fixed(_ACKS_AND_TIMEOUT, request.acks, request.timeout_ms)
    target.count(len(request.topics))
    for topic in request.topics:
        if version >= TOPIC_ID_FROM:
            target.uuid(topic.topic_id)
        else:
            target.string(topic.name)
        target.count(len(topic.partitions))
        for partition in topic.partitions:
            target.fixed(_INDEX, partition.index)
            if partition.records is None:
                target.count(None)
            else:
                target.count(len(partition.records))
                target.out += partition.records
            target.tags(())
        target.tags(())
    target.tags(())


# --- response, written ---

# Everything after the topic's name, if the partition has neither messages nor tags: partitions, index, error code, base
# offset, append time, 5: log start offset, 8: record errors, error message, (9: tags, tags,) throttle time (, 9: tags).
_SINGLE_RESULT_3 = Struct(">iihqqi")
_SINGLE_RESULT_5 = Struct(">iihqqqi")
_SINGLE_RESULT_8 = Struct(">iihqqqihi")
_SINGLE_RESULT_9 = Struct(">BihqqqBBBBiB")
_SINGLE_TOPIC = Struct(">ih")

_RESULT = Struct(">ihqq")
_LOG_START = Struct(">q")
_LEADER = Struct(">ii")
_NO_TAGS = b"\0"
_THROTTLE_TIME = Struct(">i")


def write_response(version: int, response: ProduceResponse, header: Bytes = b"") -> bytearray:
    """Encode a response. Returns `header` followed by the response."""
    topics = response.topics
    try:
        if len(topics) == 1 and len(topics[0].partitions) == 1 and not response.node_endpoints:
            topic = topics[0]
            result = topic.partitions[0]
            if not result.record_errors and result.error_message is None and result.current_leader_id == -1:
                out = bytearray(header)
                _write_single(version, topic, result, response.throttle_time_ms, out)
                return out
        target = writer(bytearray(header), version >= COMPACT_FROM)
        _write_response(version, response, target)
    except struct_error as error:
        raise ValueError(f"produce response: {error}") from error
    return target.out


def _write_single(version: int, topic: TopicResult, result: PartitionResult, throttle: int, out: bytearray) -> None:
    index, code, offset, time = result.index, result.error_code, result.base_offset, result.log_append_time_ms
    log_start = result.log_start_offset
    if version >= COMPACT_FROM:
        out.append(2)
        if version >= TOPIC_ID_FROM:
            writer(out, True).uuid(topic.topic_id)
        else:
            name = topic.name.encode()
            out += unsigned_varint(len(name) + 1)
            out += name
        out += _SINGLE_RESULT_9.pack(2, index, code, offset, time, log_start, 1, 0, 0, 0, throttle, 0)
        return
    name = topic.name.encode()
    out += _SINGLE_TOPIC.pack(1, len(name))
    out += name
    if version >= _RECORD_ERRORS_FROM:
        out += _SINGLE_RESULT_8.pack(1, index, code, offset, time, log_start, 0, -1, throttle)
    elif version >= _LOG_START_FROM:
        out += _SINGLE_RESULT_5.pack(1, index, code, offset, time, log_start, throttle)
    else:
        out += _SINGLE_RESULT_3.pack(1, index, substitute("ProduceResponse", version, code), offset, time, throttle)


def _write_response(version: int, response: ProduceResponse, target: Writer) -> None:
    target.count(len(response.topics))
    for topic in response.topics:
        if version >= TOPIC_ID_FROM:
            target.uuid(topic.topic_id)
        else:
            target.string(topic.name)
        target.count(len(topic.partitions))
        for result in topic.partitions:
            _write_result(version, result, target)
        target.tags(())
    target.fixed(_THROTTLE_TIME, response.throttle_time_ms)
    tagged = version >= LEADER_FROM and response.node_endpoints
    target.tags([(0, encode_endpoints(response.node_endpoints))] if tagged else ())


def _write_result(version: int, result: PartitionResult, target: Writer) -> None:
    code = result.error_code
    if version < _LOG_START_FROM:
        code = substitute("ProduceResponse", version, code)
    target.fixed(_RESULT, result.index, code, result.base_offset, result.log_append_time_ms)
    if version >= _LOG_START_FROM:
        target.fixed(_LOG_START, result.log_start_offset)
    if version >= _RECORD_ERRORS_FROM:
        target.count(len(result.record_errors))
        for batch_index, message in result.record_errors:
            target.fixed(_INDEX, batch_index)
            target.string(message)
            target.tags(())
        target.string(result.error_message)
    tagged = version >= LEADER_FROM and result.current_leader_id != -1
    leader = _LEADER.pack(result.current_leader_id, result.current_leader_epoch) + _NO_TAGS
    target.tags([(0, leader)] if tagged else ())


# --- response, read ---


def read_response(version: int, buffer: Bytes, position: int = 0) -> ProduceResponse:
    """The response in `buffer` from `position` to its end."""
    source = reader(memoryview(buffer), position, version >= COMPACT_FROM)
    try:
        return _read_response(version, source)
    except READ_ERRORS as error:
        raise Malformed(f"produce response: {error}") from error


def _read_response(version: int, source: Reader) -> ProduceResponse:
    response = ProduceResponse()
    for _ in range(source.count(3 if version >= COMPACT_FROM else 6)):
        topic = TopicResult()
        if version >= TOPIC_ID_FROM:
            topic.topic_id = source.uuid()
        else:
            topic.name = source.string()
        for _ in range(source.count(_RESULT.size)):
            topic.partitions.append(_read_result(version, source))
        source.skip_tags()
        response.topics.append(topic)
    (response.throttle_time_ms,) = source.fixed(_THROTTLE_TIME)
    for tag, content in source.tags():
        if tag == 0 and version >= LEADER_FROM:
            response.node_endpoints = content.endpoints()
    source.finish()
    return response


def _read_result(version: int, source: Reader) -> PartitionResult:
    result = PartitionResult(*source.fixed(_RESULT))
    if version >= _LOG_START_FROM:
        (result.log_start_offset,) = source.fixed(_LOG_START)
    if version >= _RECORD_ERRORS_FROM:
        result.record_errors = [_read_record_error(source) for _ in range(source.count(6))] or ()
        result.error_message = source.nullable_string()
    for tag, content in source.tags():
        if tag == 0 and version >= LEADER_FROM:
            result.current_leader_id, result.current_leader_epoch = content.fixed(_LEADER)
            content.skip_tags()
    return result


def _read_record_error(source: Reader) -> tuple[int, str | None]:
    (batch_index,) = source.fixed(_INDEX)
    message = source.nullable_string()
    source.skip_tags()
    return batch_index, message
