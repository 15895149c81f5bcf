"""Every version of every message against kio, the same bytes both ways, and what a reader does with absent fields."""

import random
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.wire import schema
from ottla.wire.malformed import Malformed
from ottla.wire.message import ZERO_UUID, Message
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from tests.samples import sample_size
from tests.unit.wire.arbitrary import arbitrary, classes_and_versions, message_classes
from tests.unit.wire.kio_messages import as_kio, kio_class, kio_read, kio_write

CASES = classes_and_versions()
every_class = pytest.mark.parametrize("message_class", list(message_classes()), ids=lambda each: each.__name__)


@every_class
def test_agrees_with_kio_byte_for_byte(message_class: type[Message], seed: int) -> None:
    """In every version our writer writes what kio writes, and our reader and kio's read the same from it."""
    for version in message_class.VERSIONS:
        their_class = kio_class(message_class, version)
        source = Random(f"{seed} {message_class.__name__} {version}")
        for _ in range(4):
            message = arbitrary(message_class, version, source, tame=True)
            entity = as_kio(message, their_class)
            encoded = bytes(schema.encode(message_class, version, message))
            assert encoded == kio_write(entity), version
            assert schema.decode(message_class, version, encoded) == message
            assert kio_read(their_class, encoded) == entity


@settings(max_examples=sample_size(80, 1000))
@given(st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_round_trip(case: tuple[type[Message], int], source: random.Random) -> None:
    """A message survives a round trip, also with numbers at the edge of their range and unknown error codes."""
    message_class, version = case
    message = arbitrary(message_class, version, source)
    for buffer_type in (bytes, bytearray, memoryview):
        encoded = buffer_type(schema.encode(message_class, version, message))
        assert schema.decode(message_class, version, encoded) == message


@every_class
def test_defaults_fill_what_a_version_lacks(message_class: type[Message], seed: int) -> None:
    """A field outside of a version's range is not written, and is read as the protocol's default."""
    default = message_class()
    for version in message_class.VERSIONS:
        message = arbitrary(message_class, version, Random(seed))
        for row in message_class.FIELDS:
            if not row[2] <= version <= row[3]:
                setattr(message, row[0], "not to be looked at")
        read = schema.decode(message_class, version, schema.encode(message_class, version, message))
        for row in message_class.FIELDS:
            if not row[2] <= version <= row[3]:
                assert getattr(read, row[0]) == getattr(default, row[0]), (version, row)


def test_absent_lists_are_not_shared() -> None:
    """Two messages never have the same list, neither when built nor when read."""
    assert FetchRequest().topics is not FetchRequest().topics
    data = schema.encode(FetchRequest, 4, FetchRequest())
    first, second = (schema.decode(FetchRequest, 4, data) for _ in range(2))
    assert first.forgotten_topics_data is not second.forgotten_topics_data


@pytest.mark.parametrize("version", DescribeConfigsResponse.VERSIONS)
def test_settings_that_repeat_are_read_once(version: int) -> None:
    """Nearly all topics of a cluster have the same settings: equal bytes become the same list, others their own."""

    def describe(topic: str, *values: str) -> DescribeConfigsResult:
        settings = [DescribeConfigsResourceResult(name="retention.ms", value=value) for value in values]
        return DescribeConfigsResult(resource_type=2, resource_name=topic, configs=settings)

    results = [
        describe("a", "1"),
        describe("b", "1"),
        describe("c", "2"),
        describe("d"),
        describe("e"),
        describe("f", "1"),
    ]
    sent = schema.encode(DescribeConfigsResponse, version, DescribeConfigsResponse(results=results))
    read = schema.decode(DescribeConfigsResponse, version, bytes(sent)).results
    assert [[each.value for each in result.configs] for result in read] == [["1"], ["1"], ["2"], [], [], ["1"]]
    assert [result.resource_name for result in read] == list("abcdef")
    assert read[0].configs is read[1].configs
    assert read[3].configs is read[4].configs
    again = schema.decode(DescribeConfigsResponse, version, bytes(sent)).results
    assert again[0].configs is not read[0].configs


def test_records_are_a_view() -> None:
    """Records are not copied out of the frame: what is read points into it."""
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=b"abc" * 100)])
    frame = schema.encode(FetchResponse, 4, FetchResponse(responses=[topic]))
    records = schema.decode(FetchResponse, 4, frame).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_a_misspelt_field_is_an_error() -> None:
    """Neither the constructor nor an assignment takes a name that is not in the schema."""
    with pytest.raises(TypeError):
        MetadataRequest(topic=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        MetadataRequest().topic = []  # type: ignore[attr-defined]


def test_equality_and_repr() -> None:
    """Messages are equal when class and fields are; the text of one shows its fields."""
    assert MetadataRequestTopic(name="a") == MetadataRequestTopic(name="a")
    assert MetadataRequestTopic(name="a") != MetadataRequestTopic(name="b")
    assert MetadataRequestTopic(name="a") != "a"
    assert repr(MetadataRequestTopic(name="a")) == f"MetadataRequestTopic(topic_id={ZERO_UUID!r}, name='a')"


def test_error_codes_are_numbers_when_read() -> None:
    """An ErrorCode is written as its number; a number that no ErrorCode has comes back as it was."""
    encoded = schema.encode(ApiVersionsResponse, 0, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert schema.decode(ApiVersionsResponse, 0, encoded).error_code == 35
    assert schema.decode(ApiVersionsResponse, 0, b"\x7f\x00" + encoded[2:]).error_code == 0x7F00


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (8, MetadataResponse(throttle_time_ms=2**31)),
        (8, MetadataResponse(cluster_id="x" * 32768)),
        (12, MetadataResponse(cluster_id="x" * 32768)),
        (12, MetadataResponse(cluster_id="\ud800")),
        (12, MetadataResponse(cluster_id=7)),  # type: ignore[arg-type]
        (12, MetadataResponse(topics=None)),  # type: ignore[arg-type]
        (12, MetadataResponse(topics=["text"])),  # type: ignore[list-item]
        (12, MetadataResponse(topics=[MetadataResponseTopic(topic_id=b"short")])),
        (8, MetadataResponse(topics=[MetadataResponseTopic(name=None)])),
    ],
)
def test_a_value_that_cannot_be_encoded_is_refused(version: int, message: MetadataResponse) -> None:
    """A value that the version cannot represent is Malformed, and leaves nothing in the buffer."""
    out = bytearray(b"before")
    with pytest.raises(Malformed):
        schema.writer(MetadataResponse, version)(out, message)
    assert out == b"before"


def test_an_unknown_version_is_refused() -> None:
    """A version outside of the API's range is Malformed for readers and writers."""
    with pytest.raises(Malformed):
        schema.reader(MetadataRequest, 14)
    with pytest.raises(Malformed):
        schema.writer(MetadataRequest, -1)
