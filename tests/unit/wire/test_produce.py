"""The Produce codec against kio's, byte for byte, and against bytes that are no Produce message at all."""

import dataclasses
import struct
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.wire import produce
from ottla.wire.malformed import Malformed
from ottla.wire.primitives import NodeEndpoint
from ottla.wire.produce import (
    PartitionData,
    PartitionResult,
    ProduceRequest,
    ProduceResponse,
    TopicData,
    TopicResult,
)
from tests.samples import sample_size
from tests.unit.allocations import measure_peak
from tests.unit.wire.kio_oracle import kio_bytes
from tests.unit.wire.mutations import mutants

all_versions = pytest.mark.parametrize("version", produce.VERSIONS)
few = settings(max_examples=sample_size(10, 100), deadline=None)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=200)
uuids = st.binary(min_size=16, max_size=16)
record_sets = st.one_of(st.none(), st.binary(max_size=300).map(lambda data: memoryview(data)))
error_codes = st.integers(-1, 133).filter(lambda code: code != ErrorCode.KAFKA_STORAGE_ERROR)  # replaced in old ones
times = st.integers(-1, 250_000_000_000_000)


def lists(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Lists that mostly have one element, because the codec has a fast path for that shape."""
    return st.one_of(st.lists(elements, min_size=1, max_size=1), st.lists(elements, max_size=3))


requests = st.builds(
    ProduceRequest,
    st.one_of(st.none(), names),
    int16,
    int32,
    lists(st.builds(TopicData, names, uuids, lists(st.builds(PartitionData, int32, record_sets)))),
)
endpoints = st.builds(NodeEndpoint, int32, names, int32, st.one_of(st.none(), names))
plain_results = st.builds(PartitionResult, int32, error_codes, int64, times, int64)
results = st.builds(
    PartitionResult,
    int32,
    error_codes,
    int64,
    times,
    int64,
    st.lists(st.tuples(int32, st.one_of(st.none(), names)), max_size=2),
    st.one_of(st.none(), names),
    st.integers(0, 2**31 - 1),  # without a leader there is no leader epoch either: those are the plain results
    int32,
)
responses = st.builds(
    ProduceResponse,
    lists(st.builds(TopicResult, names, uuids, lists(st.one_of(plain_results, results)))),
    int32,
    st.one_of(st.just(()), st.lists(endpoints, max_size=2)),
)


def request_in_kio(request: ProduceRequest) -> dict[str, Any]:
    return {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout": request.timeout_ms,
        "topic_data": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partition_data": [
                    {"index": item.index, "records": None if item.records is None else bytes(item.records)}
                    for item in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def response_in_kio(response: ProduceResponse) -> dict[str, Any]:
    return {
        "responses": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partition_responses": [result_in_kio(result) for result in topic.partitions],
            }
            for topic in response.topics
        ],
        "throttle_time": response.throttle_time_ms,
        "node_endpoints": [endpoint._asdict() for endpoint in response.node_endpoints],
    }


def result_in_kio(result: PartitionResult) -> dict[str, Any]:
    return {
        "index": result.index,
        "error_code": result.error_code,
        "base_offset": result.base_offset,
        "log_append_time": result.log_append_time_ms,
        "log_start_offset": result.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message} for index, message in result.record_errors
        ],
        "error_message": result.error_message,
        "current_leader": {"leader_id": result.current_leader_id, "leader_epoch": result.current_leader_epoch},
    }


def single_request() -> ProduceRequest:
    partition = PartitionData(7, memoryview(b"records" * 50))
    return ProduceRequest(None, 1, 30_000, [TopicData("orders", bytes(range(16)), [partition])])


def whole_request() -> ProduceRequest:
    """A message with every field set, and more than one element in every list."""
    topic = TopicData("orders", bytes(range(16)), [PartitionData(0, memoryview(b"abc")), PartitionData(1, None)])
    return ProduceRequest("transaction", -1, 1_000, [topic, TopicData("empty", bytes(range(1, 17)))])


def whole_response() -> ProduceResponse:
    result = PartitionResult(3, 6, 10, 20, 30, [(1, "bad"), (2, None)], "all bad", 4, 5)
    topic = TopicResult("orders", bytes(range(16)), [result, PartitionResult(4)])
    return ProduceResponse([topic, TopicResult("empty")], 100, [NodeEndpoint(4, "host", 9092, "rack")])


@all_versions
def test_requests_are_written_as_kio_writes_them_and_read_back(version: int) -> None:
    # Every request of every version has kio's bytes, and reading them gives what was written.
    @few
    @given(requests)
    def check(request: ProduceRequest) -> None:
        expected = kio_bytes("produce", "request", version, request_in_kio(request))
        assert produce.write_request(version, request, b"header") == b"header" + expected
        read = produce.read_request(version, b"header" + expected, len(b"header"))
        unsaid = {"name": ""} if version >= produce.TOPIC_ID_FROM else {"topic_id": bytes(16)}
        topics = [dataclasses.replace(topic, **unsaid) for topic in request.topics]
        assert read == dataclasses.replace(request, topics=topics)

    check()


@all_versions
def test_responses_are_written_as_kio_writes_them_and_read_back(version: int) -> None:
    # Every response of every version has kio's bytes; reading and writing it again changes nothing.
    @few
    @given(responses)
    def check(response: ProduceResponse) -> None:
        expected = kio_bytes("produce", "response", version, response_in_kio(response))
        assert produce.write_response(version, response, b"header") == b"header" + expected
        read = produce.read_response(version, b"header" + expected, len(b"header"))
        assert produce.write_response(version, read) == expected

    check()


def test_later_versions_keep_every_field_of_a_response() -> None:
    # What the reader puts into each field is what the writer took from it.
    response = whole_response()
    read = produce.read_response(12, produce.write_response(12, response))
    topics = [dataclasses.replace(topic, topic_id=bytes(16)) for topic in response.topics]
    assert read == dataclasses.replace(response, topics=topics)


def test_oldest_version_fills_what_it_lacks_with_defaults() -> None:
    # A version 3 response has no log start offset, messages, leaders or endpoints.
    read = produce.read_response(3, produce.write_response(3, whole_response()))
    assert read.topics[0].partitions == [PartitionResult(3, 6, 10, 20), PartitionResult(4)]
    assert read.node_endpoints == ()


@all_versions
@pytest.mark.parametrize("partitions", [1, 2])
def test_clients_of_version_3_are_not_told_of_storage_errors(version: int, partitions: int) -> None:
    # They would treat the code as fatal. NOT_LEADER_OR_FOLLOWER makes them look for another broker.
    rows = [PartitionResult(index, ErrorCode.KAFKA_STORAGE_ERROR) for index in range(partitions)]
    data = produce.write_response(version, ProduceResponse([TopicResult("t", bytes(16), rows)]))
    told = {row.error_code for row in produce.read_response(version, data).topics[0].partitions}
    assert told == {ErrorCode.NOT_LEADER_OR_FOLLOWER if version == 3 else ErrorCode.KAFKA_STORAGE_ERROR}


@all_versions
def test_a_single_partition_takes_the_fast_path(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The shape of nearly every request never reaches the general code, neither when it is read nor when it is answered.
    request = single_request()
    data = produce.write_request(version, request)
    response = ProduceResponse([TopicResult("orders", bytes(range(16)), [PartitionResult(7, 0, 42)])])
    expected = kio_bytes("produce", "response", version, response_in_kio(response))
    monkeypatch.setattr(produce, "_read_request", None)
    monkeypatch.setattr(produce, "_write_response", None)
    assert produce.read_request(version, data).topics[0].partitions == request.topics[0].partitions
    assert produce.write_response(version, response) == expected


@all_versions
@pytest.mark.parametrize("request_of", [single_request, whole_request])
def test_records_are_not_copied(version: int, request_of: Any) -> None:
    # The records are a window into the frame: a byte changed there is seen through it.
    frame = produce.write_request(version, request_of())
    records = produce.read_request(version, frame).topics[0].partitions[0].records
    assert records is not None and records.obj is frame
    start = frame.index(bytes(records))
    frame[start] = 0xAA
    assert records[0] == 0xAA


@all_versions
@pytest.mark.parametrize("request_of", [single_request, whole_request])
def test_requests_cut_short_or_too_long_are_refused(version: int, request_of: Any) -> None:
    # No prefix of a request is a request, nor is one with a byte behind it.
    data = bytes(produce.write_request(version, request_of()))
    for end in range(len(data)):
        with pytest.raises(Malformed):
            produce.read_request(version, data[:end])
    with pytest.raises(Malformed):
        produce.read_request(version, data + b"\0")


@all_versions
def test_responses_cut_short_or_too_long_are_refused(version: int) -> None:
    # No prefix of a response is a response, nor is one with a byte behind it.
    data = bytes(produce.write_response(version, whole_response()))
    for end in range(len(data)):
        with pytest.raises(Malformed):
            produce.read_response(version, data[:end])
    with pytest.raises(Malformed):
        produce.read_response(version, data + b"\0")


@all_versions
def test_damaged_bytes_raise_malformed_and_nothing_else(version: int, seed: int) -> None:
    # Bytes changed, cut, repeated and replaced by extreme lengths: a message or Malformed.
    random = Random(seed)
    for data in (produce.write_request(version, single_request()), produce.write_request(version, whole_request())):
        for mutant in mutants(random, bytes(data), 300):
            read_or_refuse(produce.read_request, version, mutant)
    for mutant in mutants(random, bytes(produce.write_response(version, whole_response())), 300):
        read_or_refuse(produce.read_response, version, mutant)


def read_or_refuse(read: Any, version: int, data: bytes) -> None:
    try:
        read(version, data)
    except Malformed:
        return


@all_versions
def test_huge_counts_cost_no_memory(version: int) -> None:
    # An announcement of two billion topics, partitions or bytes of records is refused before anything is allocated.
    compact = version >= produce.COMPACT_FROM
    head = (b"\0" if compact else b"\xff\xff") + struct.pack(">hi", 1, 1000)
    huge = b"\xff\xff\xff\xff\x07" if compact else b"\x7f\xff\xff\xff"
    one = b"\x02" if compact else b"\0\0\0\1"
    topic = bytes(16) if version >= produce.TOPIC_ID_FROM else b"\x02a" if compact else b"\0\1a"
    padding = bytes(100)
    for body in (huge, one + topic + huge, one + topic + one + bytes(4) + huge):

        def refuse(frame: bytes = head + body + padding) -> None:
            with pytest.raises(Malformed):
                produce.read_request(version, frame)

        assert measure_peak(refuse) < 20_000


@pytest.mark.parametrize(("version", "topic"), [(8, b"\0\0\0\0\0\0"), (9, b"\1\1\0"), (13, bytes(16) + b"\1\0")])
def test_memory_is_a_small_multiple_of_the_frame(version: int, topic: bytes) -> None:
    # The densest frame, topics without partitions, becomes objects of at most forty times its size.
    count = 20_000
    announced = struct.pack(">i", count) if version < 9 else b"\xa1\x9c\x01"
    head = (b"\xff\xff" if version < 9 else b"\0") + struct.pack(">hi", 1, 1000)
    frame = head + announced + topic * count + (b"" if version < 9 else b"\0")
    assert len(produce.read_request(version, frame).topics) == count
    assert measure_peak(lambda: produce.read_request(version, frame)) < 45 * len(frame)


def test_unknown_tagged_fields_are_skipped() -> None:
    # A newer client may tag what we do not know, on every level.
    plain = produce.write_request(9, single_request())
    tags = b"\x02\x05\x01x\x09\x00"
    assert plain.endswith(b"\0\0\0")
    assert produce.read_request(9, plain[:-3] + tags * 3) == produce.read_request(9, plain)


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x02\x05\x00\x05\x00", id="twice"),
        pytest.param(b"\x02\x05\x00\x04\x00", id="descending"),
        pytest.param(b"\x01\x05\x7f", id="longer than the frame"),
        pytest.param(b"\x01\xff\xff\xff\xff\xff\x01\x00", id="tag of six bytes"),
        pytest.param(b"\xff\xff\xff\xff\x0f", id="four billion"),
    ],
)
def test_wrong_tagged_fields_are_refused(tags: bytes) -> None:
    # Tags ascend, each once, and stay inside the frame.
    plain = produce.write_request(9, single_request())
    with pytest.raises(Malformed):
        produce.read_request(9, plain[:-1] + tags)


@pytest.mark.parametrize("size", [0, 8, 10])
def test_known_tagged_field_of_another_size_is_refused(size: int) -> None:
    # The current leader takes nine bytes: neither fewer nor more may be announced.
    response = ProduceResponse([TopicResult("t", bytes(16), [PartitionResult(0, 6, current_leader_id=1)])])
    data = bytes(produce.write_response(10, response))
    field = b"\x01\x00\x09" + struct.pack(">iib", 1, -1, 0)
    assert data.count(field) == 1
    with pytest.raises(Malformed):
        produce.read_response(10, data.replace(field, b"\x01\x00" + bytes([size]) + field[3:] + b"\0"))


@pytest.mark.parametrize(
    ("version", "body"),
    [
        pytest.param(3, b"\xff\xff\0\1\0\0\0\0\xff\xff\xff\xff", id="null topics"),
        pytest.param(3, b"\xff\xff\0\1\0\0\0\0\0\0\0\1\xff\xff\0\0\0\0", id="null name"),
        pytest.param(3, b"\xff\xfe\0\1\0\0\0\0\0\0\0\0", id="length -2"),
        pytest.param(3, b"\0\1\xff\0\1\0\0\0\0\0\0\0\0", id="no UTF-8"),
        pytest.param(9, b"\0\0\1\0\0\0\0\0\0", id="compact null topics"),
        pytest.param(9, b"\0\0\1\0\0\0\0\2\0\1\0\0", id="compact null name"),
    ],
)
def test_what_the_schema_forbids_is_refused(version: int, body: bytes) -> None:
    # Null where no null may be, negative lengths, strings that are no text.
    with pytest.raises(Malformed):
        produce.read_request(version, body)


def test_values_that_do_not_fit_are_refused_by_the_writer() -> None:
    # A number out of range or a name too long is the caller's mistake, said as ValueError.
    response = ProduceResponse([TopicResult("t", bytes(16), [PartitionResult(2**31)])])
    with pytest.raises(ValueError, match="produce response"):
        produce.write_response(9, response)
    with pytest.raises(ValueError, match="produce request"):
        produce.write_request(8, ProduceRequest("x" * 40_000))
    with pytest.raises(ValueError, match="16 bytes"):
        produce.write_request(13, ProduceRequest(topics=[TopicData(topic_id=b"short")]))
