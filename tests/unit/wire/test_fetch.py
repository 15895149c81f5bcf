"""The Fetch codec against kio's, byte for byte, and against bytes that are no Fetch message at all."""

import dataclasses
import struct
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.storage.files import File, FileSlice
from ottla.wire import fetch
from ottla.wire.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    Part,
    PartitionResult,
    SnapshotId,
    TopicResult,
)
from ottla.wire.fetch.requests import _read_request
from ottla.wire.malformed import Malformed
from ottla.wire.primitives import READ_ERRORS, NodeEndpoint, reader
from tests.samples import sample_size
from tests.unit.allocations import measure_peak
from tests.unit.wire.kio_oracle import kio_bytes
from tests.unit.wire.mutations import mutants

all_versions = pytest.mark.parametrize("version", fetch.VERSIONS)
few = settings(max_examples=sample_size(10, 100), deadline=None)

int8 = st.integers(-128, 127)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=200)
uuids = st.binary(min_size=16, max_size=16)
error_codes = st.integers(-1, 133).filter(lambda code: code != ErrorCode.KAFKA_STORAGE_ERROR)  # replaced in old ones


class StoredSlice(FileSlice):
    """A stand-in for a slice of a file: the codec uses only its length, and the test its content."""

    def __init__(self, content: bytes) -> None:
        super().__init__(cast(File, None), 0, len(content))
        self.content = content


def few_of(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, max_size=3)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


def content_of(records: Any) -> bytes:
    if records is None:
        return b""
    if isinstance(records, StoredSlice):
        return records.content
    if isinstance(records, list):
        return b"".join(piece.content for piece in records)
    return bytes(records)


def sent(parts: Sequence[Part]) -> bytes:
    """The bytes on the wire: the parts one after the other."""
    return b"".join(content_of(part) for part in parts)


partitions = st.builds(FetchPartition, int32, int32, int64, int32, int64, int32, uuids, int64)
requests = st.builds(
    FetchRequest,
    int32,
    int64,
    int32,
    int32,
    int32,
    int8,
    int32,
    int32,
    few_of(st.builds(FetchTopic, names, uuids, few_of(partitions))),
    few_of(st.builds(ForgottenTopic, names, uuids, few_of(int32))),
    names,
    maybe(names),
)
slices = st.binary(max_size=100).map(StoredSlice)
big_records = st.integers(4000, 5000).map(lambda size: bytes(size))
results = st.builds(
    PartitionResult,
    int32,
    error_codes,
    int64,
    int64,
    int64,
    maybe(few_of(st.builds(AbortedTransaction, int64, int64))),
    int32,
    st.one_of(st.none(), st.binary(max_size=100), big_records, slices, few_of(slices)),
    maybe(st.builds(EpochEndOffset, st.integers(0, 2**31 - 1), int64)),
    maybe(st.builds(LeaderIdAndEpoch, st.integers(0, 2**31 - 1), int32)),
    maybe(st.builds(SnapshotId, st.integers(0, 2**63 - 1), int32)),
)
responses = st.builds(
    FetchResponse,
    int32,
    error_codes,
    int32,
    few_of(st.builds(TopicResult, names, uuids, few_of(results))),
    few_of(st.builds(NodeEndpoint, int32, names, int32, maybe(names))),
)


def request_in_kio(request: FetchRequest) -> dict[str, Any]:
    topics = [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [partition_in_kio(partition) for partition in topic.partitions],
        }
        for topic in request.topics
    ]
    forgotten = [
        {"topic": topic.name, "topic_id": topic.topic_id, "partitions": topic.indexes} for topic in request.forgotten
    ]
    return {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "max_wait": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": topics,
        "forgotten_topics_data": forgotten,
        "rack_id": request.rack_id,
    }


def partition_in_kio(partition: FetchPartition) -> dict[str, Any]:
    values = dataclasses.asdict(partition)
    return values | {"partition": values["index"], "partition_max_bytes": values["max_bytes"]}


def response_in_kio(response: FetchResponse) -> dict[str, Any]:
    topics = [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [result_in_kio(result) for result in topic.partitions],
        }
        for topic in response.topics
    ]
    return {
        "throttle_time": response.throttle_time_ms,
        "error_code": response.error_code,
        "session_id": response.session_id,
        "responses": topics,
        "node_endpoints": [endpoint._asdict() for endpoint in response.node_endpoints],
    }


def result_in_kio(result: PartitionResult) -> dict[str, Any]:
    aborted = result.aborted_transactions
    return {
        "partition_index": result.index,
        "error_code": result.error_code,
        "high_watermark": result.high_watermark,
        "last_stable_offset": result.last_stable_offset,
        "log_start_offset": result.log_start_offset,
        "aborted_transactions": None if aborted is None else [transaction._asdict() for transaction in aborted],
        "preferred_read_replica": result.preferred_read_replica,
        "records": content_of(result.records),
        "diverging_epoch": (result.diverging_epoch or EpochEndOffset(-1, -1))._asdict(),
        "current_leader": (result.current_leader or LeaderIdAndEpoch(-1, -1))._asdict(),
        "snapshot_id": (result.snapshot_id or SnapshotId(-1, -1))._asdict(),
    }


def whole_request() -> FetchRequest:
    """A message with every field set, and more than one element in every list."""
    rows = [FetchPartition(0, 1, 2, 3, 4, 5, bytes(range(16)), 6), FetchPartition(7, 8, 9, 10, 11, 12)]
    topics = [FetchTopic("orders", bytes(range(16)), rows), FetchTopic("empty", bytes(range(1, 17)))]
    forgotten = [ForgottenTopic("old", bytes(range(2, 18)), [1, 2, 3])]
    return FetchRequest(13, 14, 15, 16, 17, 1, 18, 19, topics, forgotten, "rack", "cluster")


def whole_response() -> FetchResponse:
    aborted = [AbortedTransaction(7, 8), AbortedTransaction(9, 10)]
    tags = (EpochEndOffset(1, 2), LeaderIdAndEpoch(3, 4), SnapshotId(5, 6))
    rows = [PartitionResult(1, 6, 3, 4, 5, aborted, 6, memoryview(b"records"), *tags), PartitionResult(2)]
    topics = [TopicResult("orders", bytes(range(16)), rows), TopicResult("empty")]
    return FetchResponse(1, 0, 2, topics, [NodeEndpoint(3, "host", 9092, "rack")])


@all_versions
def test_requests_are_written_as_kio_writes_them_and_read_back(version: int) -> None:
    # Every request of every version has kio's bytes; reading and writing it again changes nothing.
    @few
    @given(requests)
    def check(request: FetchRequest) -> None:
        expected = kio_bytes("fetch", "request", version, request_in_kio(request))
        assert fetch.write_request(version, request, b"header") == b"header" + expected
        read = fetch.read_request(version, b"header" + expected, len(b"header"))
        assert fetch.write_request(version, read) == expected

    check()


@all_versions
def test_responses_are_written_as_kio_writes_them_and_read_back(version: int) -> None:
    # Every response of every version has kio's bytes, wherever its records lie; reading and writing changes nothing.
    @few
    @given(responses)
    def check(response: FetchResponse) -> None:
        expected = kio_bytes("fetch", "response", version, response_in_kio(response))
        parts = fetch.write_response(version, response, b"header")
        assert sent(parts) == b"header" + expected
        assert fetch.total_length(parts) == len(b"header" + expected)
        read = fetch.read_response(version, b"header" + expected, len(b"header"))
        assert sent(fetch.write_response(version, read)) == expected

    check()


def test_newest_version_keeps_every_field() -> None:
    # What the reader puts into each field is what the writer took from it.
    request = whole_request()
    read = fetch.read_request(18, fetch.write_request(18, request))
    topics = [dataclasses.replace(topic, name="") for topic in request.topics]
    forgotten = [topic._replace(name="") for topic in request.forgotten]
    assert read == dataclasses.replace(request, topics=topics, forgotten=forgotten)

    response = whole_response()
    answer = fetch.read_response(18, sent(fetch.write_response(18, response)))
    results = [dataclasses.replace(topic, name="") for topic in response.topics]
    results[0].partitions[1].records = memoryview(b"")
    assert answer == dataclasses.replace(response, topics=results)


def test_oldest_version_fills_what_it_lacks_with_defaults() -> None:
    # A version 4 message has no sessions, leader epochs, racks or tags.
    read = fetch.read_request(4, fetch.write_request(4, whole_request()))
    rows = [FetchPartition(0, fetch_offset=2, max_bytes=5), FetchPartition(7, fetch_offset=9, max_bytes=12)]
    topics = [FetchTopic("orders", partitions=rows), FetchTopic("empty")]
    assert read == FetchRequest(13, -1, 15, 16, 17, 1, topics=topics)

    answer = fetch.read_response(4, sent(fetch.write_response(4, whole_response())))
    aborted = [AbortedTransaction(7, 8), AbortedTransaction(9, 10)]
    first = PartitionResult(1, 6, 3, 4, aborted_transactions=aborted, records=memoryview(b"records"))
    assert answer.topics[0].partitions == [first, PartitionResult(2, records=memoryview(b""))]
    assert (answer.session_id, answer.node_endpoints) == (0, ())


@all_versions
def test_slices_of_files_stay_slices(version: int) -> None:
    # A slice goes into the parts as it is, between the bytes around it; an empty one is left out.
    first, second, third = StoredSlice(b"one"), StoredSlice(b"two"), StoredSlice(b"three")
    rows = [
        PartitionResult(0, records=first),
        PartitionResult(1, records=StoredSlice(b"")),
        PartitionResult(2, records=[second, StoredSlice(b""), third]),
        PartitionResult(3, records=[]),
    ]
    parts = fetch.write_response(version, FetchResponse(topics=[TopicResult("t", bytes(16), rows)]))
    kinds = [part if isinstance(part, StoredSlice) else "bytes" for part in parts]
    assert kinds == ["bytes", first, "bytes", second, third, "bytes"]
    answer = fetch.read_response(version, sent(parts))
    assert [content_of(row.records) for row in answer.topics[0].partitions] == [b"one", b"", b"twothree", b""]


@all_versions
def test_clients_below_version_6_are_not_told_of_storage_errors(version: int) -> None:
    # They would treat the code as fatal. NOT_LEADER_OR_FOLLOWER makes them look for another broker.
    rows = [PartitionResult(0, ErrorCode.KAFKA_STORAGE_ERROR)]
    data = sent(fetch.write_response(version, FetchResponse(topics=[TopicResult("t", bytes(16), rows)])))
    told = fetch.read_response(version, data).topics[0].partitions[0].error_code
    assert told == (ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 6 else ErrorCode.KAFKA_STORAGE_ERROR)


@all_versions
def test_absent_records_are_empty_and_never_null(version: int) -> None:
    # Clients expect a set of records in every partition, also beside an error; null in a response is understood.
    response = FetchResponse(topics=[TopicResult("t", bytes(16), [PartitionResult(0, 3)])])
    data = sent(fetch.write_response(version, response))
    assert fetch.read_response(version, data).topics[0].partitions[0].records == b""
    values = response_in_kio(response)
    values["responses"][0]["partitions"][0]["records"] = None
    null = fetch.read_response(version, kio_bytes("fetch", "response", version, values))
    assert null.topics[0].partitions[0].records is None


def test_large_records_in_memory_are_not_copied() -> None:
    # Records that are bytes already become a part of their own once a copy would cost more than a part.
    records = bytes(100_000)
    topic = TopicResult("t", partitions=[PartitionResult(0, records=records)])
    parts = fetch.write_response(12, FetchResponse(topics=[topic]))
    assert any(part is records for part in parts)


def test_read_records_are_not_copied() -> None:
    # A follower's records are a window into the frame that came.
    frame = bytearray(sent(fetch.write_response(12, whole_response())))
    records = fetch.read_response(12, frame).topics[0].partitions[0].records
    assert isinstance(records, memoryview) and records.obj is frame


@all_versions
def test_messages_cut_short_or_too_long_are_refused(version: int) -> None:
    # No prefix of a message is a message, nor is one with a byte behind it.
    request = bytes(fetch.write_request(version, whole_request()))
    response = sent(fetch.write_response(version, whole_response()))
    for read, data in ((fetch.read_request, request), (fetch.read_response, response)):
        for end in range(len(data)):
            with pytest.raises(Malformed):
                read(version, data[:end])
        with pytest.raises(Malformed):
            read(version, data + b"\0")


@all_versions
def test_damaged_bytes_raise_malformed_and_nothing_else(version: int, seed: int) -> None:
    # Bytes changed, cut, repeated and replaced by extreme lengths: a message or Malformed.
    random = Random(seed)
    request = bytes(fetch.write_request(version, whole_request()))
    response = sent(fetch.write_response(version, whole_response()))
    for read, data in ((fetch.read_request, request), (fetch.read_response, response)):
        for mutant in mutants(random, data, 400):
            read_or_refuse(read, version, mutant)


def read_or_refuse(read: Any, version: int, data: bytes) -> None:
    try:
        read(version, data)
    except Malformed:
        return


@all_versions
def test_huge_counts_cost_no_memory(version: int) -> None:
    # An announcement of two billion topics, partitions or forgotten partitions is refused before anything is allocated.
    compact = version >= fetch.COMPACT_FROM
    head = bytes(13 + (4 if version < 15 else 0) + (8 if version >= 7 else 0))
    huge = b"\xff\xff\xff\xff\x07" if compact else b"\x7f\xff\xff\xff"
    none, one = (b"\x01", b"\x02") if compact else (b"\0\0\0\0", b"\0\0\0\1")
    topic = bytes(16) if version >= fetch.TOPIC_ID_FROM else b"\x02a" if compact else b"\0\1a"
    bodies = [huge, one + topic + huge]
    if version >= 7:
        bodies += [none + huge, none + one + topic + huge]
    for body in bodies:

        def refuse(frame: bytes = head + body + bytes(100)) -> None:
            with pytest.raises(Malformed, match="announced"):
                fetch.read_request(version, frame)

        assert measure_peak(refuse) < 20_000


@pytest.mark.parametrize(("version", "announced"), [(11, struct.pack(">i", 20_000)), (12, b"\xa1\x9c\x01")])
def test_memory_is_a_small_multiple_of_the_frame(version: int, announced: bytes) -> None:
    # The densest frame, topics without partitions, becomes objects of at most forty times its size.
    topic = b"\0\0\0\0\0\0" if version == 11 else b"\1\1\0"
    end = b"\0\0\0\0\0\0" if version == 11 else b"\1\1\0"
    frame = bytes(25) + announced + topic * 20_000 + end
    assert len(fetch.read_request(version, frame).topics) == 20_000
    assert measure_peak(lambda: fetch.read_request(version, frame)) < 45 * len(frame)


def test_unknown_tagged_fields_are_skipped() -> None:
    # A newer client may send tagged fields that we do not know, and a tag of a later version is unknown in an earlier
    # one.
    plain = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(0)])])
    data = bytes(fetch.write_request(12, plain))
    end = b"\0\0\1\1\0"  # tags of partition and topic, no forgotten topics, no rack, tags of the request
    assert data.endswith(end)
    unknown = b"\x02\x01\x01x\x09\x00"
    tagged = data[: -len(end)] + unknown + unknown + b"\1\1" + unknown
    assert fetch.read_request(12, tagged) == fetch.read_request(12, data)


@pytest.mark.parametrize("size", [0, 12, 14])
def test_known_tagged_field_of_another_size_is_refused(size: int) -> None:
    # The replica state takes thirteen bytes: neither fewer nor more may be announced.
    data = bytes(fetch.write_request(15, FetchRequest(replica_id=1, replica_epoch=2)))
    field = b"\x01\x01\x0d" + struct.pack(">iqb", 1, 2, 0)
    assert data.endswith(field)
    with pytest.raises(Malformed):
        fetch.read_request(15, data[: -len(field)] + b"\x01\x01" + bytes([size]) + field[3:][:size].ljust(size, b"\0"))


def test_values_that_do_not_fit_are_refused_by_the_writer() -> None:
    # A number out of range is the caller's mistake, said as ValueError.
    with pytest.raises(ValueError, match="fetch response"):
        fetch.write_response(12, FetchResponse(session_id=2**31))
    with pytest.raises(ValueError, match="fetch request"):
        fetch.write_request(12, FetchRequest(max_bytes=2**31))


def follower_request(partitions: int, version: int) -> FetchRequest:
    """What a follower sends in a session: nothing new, or one partition with new offsets."""
    asked = [FetchPartition(index, 4, 2**40, 3, 7, 1 << 20) for index in range(partitions)]
    for partition in asked:
        partition.high_watermark = 99 if version >= 18 else fetch.HIGH_WATERMARK_UNSUPPORTED
    topics = [FetchTopic(topic_id=b"t" * 16, partitions=asked)] if asked else []
    return FetchRequest(
        replica_id=2, replica_epoch=2**33, max_wait_ms=500, min_bytes=1, session_id=7, session_epoch=8, topics=topics
    )


@pytest.mark.parametrize("version", [17, 18])
@pytest.mark.parametrize("partitions", [0, 1, 2])
def test_the_short_way_to_read_a_followers_request_finds_what_the_long_one_does(
    version: int, partitions: int, seed: int
) -> None:
    request = follower_request(partitions, version)
    data = bytes(fetch.write_request(version, request))
    assert fetch.read_request(version, data) == request
    assert fetch.read_request(version, b"head" + data, 4) == request
    for mutant in mutants(Random(seed), data, 1000):
        try:
            found: FetchRequest | None = fetch.read_request(version, mutant)
        except Malformed:
            found = None
        assert found == read_the_long_way(version, mutant)


def read_the_long_way(version: int, data: bytes) -> FetchRequest | None:
    try:
        return _read_request(version, reader(memoryview(data), 0, True))
    except (Malformed, *READ_ERRORS):
        return None
