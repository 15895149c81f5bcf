"""Metadata's answers are put together from pieces that are written once: they must be what the image says, always."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.call import Call, Client
from ottla.broker.node import Node
from ottla.cluster.changes import NO_LEADER, Endpoint
from ottla.cluster.entities import BrokerImage, PartitionImage, TopicImage
from ottla.cluster.image import EMPTY, Image
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode
from ottla.handlers import metadata
from ottla.handlers.metadata import EncodedPieces, describe
from ottla.wire import schema
from ottla.wire.error_codes import find_error_codes
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

CLIENT = Client(1, "PLAINTEXT", ("client", 1), ("here", 9092))
BROKER = BrokerImage(0, 1, (Endpoint("PLAINTEXT", "", 0, "PLAINTEXT"),), None, fenced=False, clean=True)
LED, LEADERLESS = PartitionImage((0,), (0,), 0), PartitionImage((0,), (), NO_LEADER)


def image_of(*partitions: PartitionImage) -> tuple[Image, TopicImage]:
    topic = TopicImage("orders", b"i" * 16, partitions)
    return replace(EMPTY, brokers=EMPTY.brokers.set(0, BROKER)), topic


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_a_piece_is_what_the_topic_would_have_been_written_as(version: int) -> None:
    # In every version an answer made of pieces has the bytes of one made of messages.
    image, topic = image_of(LED, LED)
    pieces = EncodedPieces.of(image)
    assert EncodedPieces.of(image) is pieces

    def answer(topics: list[MetadataResponseTopic], brokers: bool) -> bytearray:
        broker = pieces.brokers(image, CLIENT, version) if brokers else [metadata.describe_broker(BROKER, CLIENT)]
        return schema.encode(MetadataResponse, version, MetadataResponse(brokers=broker, topics=topics))

    plain = answer([describe(image, topic)] * 2, brokers=False)
    for _ in range(2):  # made, and found again
        assert answer([pieces.topic(image, topic, version, False), describe(image, topic)], brokers=True) == plain
    assert schema.decode(MetadataResponse, version, plain).topics[1].name == "orders"


def test_a_topic_with_an_error_is_told_and_counted_each_time() -> None:
    # What tells an error is not kept as bytes, in which nobody would find it.
    image, topic = image_of(LED, LEADERLESS)
    described = EncodedPieces.of(image).topic(image, topic, 12, False)
    assert find_error_codes(MetadataResponse(topics=[described])) == [5]


def test_pieces_keep_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # A client that asks in every version for all topics does not fill the memory: later ones are written each time.
    monkeypatch.setattr(metadata, "PIECES_BYTES_MAX", 1000)
    image, topic = image_of(LED)
    pieces = EncodedPieces.of(image)
    first, second = pieces.topic(image, topic, 12, False), pieces.topic(image, topic, 12, True)
    third, fourth = pieces.topic(image, topic, 11, False), pieces.topic(image, topic, 11, True)
    assert pieces.topic(image, topic, 12, False) is first and pieces.topic(image, topic, 12, True) is second
    assert third is pieces.topic(image, topic, 11, False)
    again = pieces.topic(image, topic, 11, True)
    assert again == fourth and again is not fourth


def asked(
    image: Image, name: str | None, version: int = 12, client: Client = CLIENT, **options: Any
) -> bytes | MetadataResponse:
    """What a broker with this image, which creates no topics, answers to a question about one."""
    node = cast(Node, SimpleNamespace(image=image, config=BrokerConfig.of({"auto.create.topics.enable": "false"})))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], **options)
    return metadata.handle(node, Call(3, version, 1, None, request, client))


def named(image: Image, topic: TopicImage) -> Image:
    return replace(image, topics_by_name=image.topics_by_name.set(topic.name, topic))


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_a_question_that_came_before_gets_the_same_bytes(version: int) -> None:
    # In every version, and only for who asked the same in the same way: other flags and other addresses differ.
    image = named(*image_of(LED))
    first, second = asked(image, "orders", version), asked(image, "orders", version)
    assert isinstance(first, MetadataResponse) and isinstance(second, bytes)
    assert second == schema.encode(MetadataResponse, version, first)
    elsewhere = Client(2, "PLAINTEXT", ("client", 1), ("there", 9092))
    assert isinstance(asked(image, "orders", version, elsewhere), MetadataResponse)
    if 8 <= version <= 10:
        assert isinstance(asked(image, "orders", version, include_cluster_authorized_operations=True), MetadataResponse)
    if version >= 8:
        assert isinstance(asked(image, "orders", version, include_topic_authorized_operations=True), MetadataResponse)


def test_what_changes_is_told_at_once() -> None:
    # An image never changes: a new one has answers of its own.
    image, topic = image_of(LED)
    before = named(image, topic)
    asked(before, "orders")
    after = named(before, replace(topic, partitions=(LED, LED)))
    told = asked(after, "orders")
    assert isinstance(told, MetadataResponse)
    assert len(schema.decode(MetadataResponse, 12, schema.encode(MetadataResponse, 12, told)).topics[0].partitions) == 2


@pytest.mark.parametrize("name", ["payments", "not a name", None, "orders"])
def test_an_answer_with_an_error_is_not_kept(name: str | None) -> None:
    # A topic that is not there, a name that cannot be, an id that nobody has, a partition without a leader.
    image = named(*image_of(LEADERLESS))
    for _ in range(2):
        told = asked(image, name)
        assert isinstance(told, MetadataResponse) and find_error_codes(told)


def created(names: list[str], version: int = 12, broker_allows: bool = True, **options: Any) -> list[str]:
    """Topics whose creation a request for these names asks for; every one of them is unknown in the answer."""
    requested: list[str] = []
    node = cast(
        Node,
        SimpleNamespace(
            image=named(*image_of(LED)),
            config=BrokerConfig.of({"auto.create.topics.enable": str(broker_allows).lower()}),
            auto_creation=SimpleNamespace(request=requested.extend),
        ),
    )
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)
    response = metadata.handle(node, Call(3, version, 1, None, request, CLIENT))
    assert isinstance(response, MetadataResponse)
    for topic in response.topics:
        if getattr(topic, "name", None) in requested:
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return requested


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_the_creation_of_a_missing_topic_is_requested(version: int) -> None:
    # By a request for one topic and by one for several. What exists, and what cannot be a name, is not requested.
    assert created(["payments"], version) == ["payments"]
    assert created(["payments", "orders", "not a name", "returns"], version) == ["payments", "returns"]
    assert created(["not a name"], version) == []


def test_the_client_and_the_broker_may_forbid_the_creation() -> None:
    # The client's field came with version 4: before it, every client allowed it.
    assert created(["payments"], broker_allows=False) == []
    assert created(["payments"], 4, allow_auto_topic_creation=False) == []
    assert created(["payments"], 3, allow_auto_topic_creation=False) == ["payments"]
