"""Fetch responses to parts and back: records stay slices of files between the bytes around them."""

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error

from ottla.storage.files import FileSlice
from ottla.wire.fetch.messages import (
    COMPACT_FROM,
    ENDPOINTS_FROM,
    LOG_START_FROM,
    RACK_FROM,
    SESSION_FROM,
    TOPIC_ID_FROM,
    AbortedTransaction,
    EpochEndOffset,
    FetchResponse,
    LeaderIdAndEpoch,
    Part,
    PartitionResult,
    Records,
    SnapshotId,
    TopicResult,
    read_topic,
    write_topic,
)
from ottla.wire.malformed import Malformed
from ottla.wire.primitives import (
    READ_ERRORS,
    Bytes,
    CompactWriter,
    Reader,
    Writer,
    encode_endpoints,
    reader,
    unsigned_varint,
    writer,
)
from ottla.wire.substitutes import substitute

_COPIED_BYTES_MAX = 4096
_NO_TAGS = b"\0"

_THROTTLE_TIME = Struct(">i")
_SESSION_RESULT = Struct(">hi")
_RESULT_4 = Struct(">ihqq")
_RESULT_5 = Struct(">ihqqq")
_LOG_START = Struct(">q")
_PREFERRED_REPLICA = Struct(">i")
# The bytes before the records if there is no list of aborted transactions, as for most consumers.
_UNCOMMITTED_12 = Struct(">ihqqqBi")
_ABORTED = Struct(">qq")
_DIVERGING_EPOCH = Struct(">iq")
_CURRENT_LEADER = Struct(">ii")
_SNAPSHOT_ID = Struct(">qi")

# One partition of one topic with nothing but records: from the throttle time to the topic, then to the records, and
# the bytes after them.
_SINGLE_HEAD = Struct(">ihiB")
_SINGLE_RESULT = Struct(">BihqqqBi")
_SINGLE_END = bytes(3)
_SINGLE_NOTHING = unsigned_varint(1) + _SINGLE_END


def write_response(version: int, response: FetchResponse, header: Bytes = b"") -> list[Part]:
    """The response after `header`, in parts that are sent one after the other; `total_length` is their length."""
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
        if version >= SESSION_FROM:
            target.fixed(_SESSION_RESULT, response.error_code, response.session_id)
        target.count(len(response.topics))
        for topic in response.topics:
            write_topic(version, topic.name, topic.topic_id, target)
            target.count(len(topic.partitions))
            for result in topic.partitions:
                _write_result(version, result, target, parts)
            target.tags(())
        tagged = version >= ENDPOINTS_FROM and response.node_endpoints
        target.tags([(0, encode_endpoints(response.node_endpoints))] if tagged else ())
    except struct_error as error:
        raise ValueError(f"fetch response: {error}") from error
    if target.out:
        parts.append(target.out)
    return parts


def _write_single(
    version: int,
    response: FetchResponse,
    topic: TopicResult,
    result: PartitionResult,
    records: FileSlice | None,
    header: Bytes,
) -> list[Part]:
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
            2,
            result.index,
            result.error_code,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            0,
            result.preferred_read_replica,
        )
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
    if version >= LOG_START_FROM:
        target.fixed(_LOG_START, result.log_start_offset)
    if result.aborted_transactions is None:
        target.count(None)
    else:
        _write_aborted(result.aborted_transactions, target)
    if version >= RACK_FROM:
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
    error_code, session_id = source.fixed(_SESSION_RESULT) if version >= SESSION_FROM else (0, 0)
    response = FetchResponse(throttle_time_ms, error_code, session_id)
    for _ in range(source.count(3 if version >= COMPACT_FROM else 6)):
        topic = TopicResult(*read_topic(version, source))
        for _ in range(source.count(_RESULT_4.size)):
            topic.partitions.append(_read_result(version, source))
        source.skip_tags()
        response.topics.append(topic)
    for tag, content in source.tags():
        if tag == 0 and version >= ENDPOINTS_FROM:
            response.node_endpoints = content.endpoints()
    source.finish()
    return response


def _read_result(version: int, source: Reader) -> PartitionResult:
    result = PartitionResult(*source.fixed(_RESULT_5 if version >= LOG_START_FROM else _RESULT_4))
    count = source.nullable_count(_ABORTED.size)
    if count is not None:
        aborted = []
        for _ in range(count):
            aborted.append(AbortedTransaction(*source.fixed(_ABORTED)))
            source.skip_tags()
        result.aborted_transactions = aborted
    if version >= RACK_FROM:
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
