"""Metadata's answers are put together from pieces that are written once: they must be what the image says, always."""

from dataclasses import replace

import pytest

from ottla.call import Client
from ottla.cluster.changes import NO_LEADER, Endpoint
from ottla.cluster.entities import BrokerImage, PartitionImage, TopicImage
from ottla.cluster.image import EMPTY, Image
from ottla.handlers import metadata
from ottla.handlers.metadata import Pieces, describe
from ottla.wire import schema
from ottla.wire.error_codes import error_codes
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

CLIENT = Client(1, "PLAINTEXT", ("client", 1), ("here", 9092))
BROKER = BrokerImage(0, 1, bytes(16), (Endpoint("PLAINTEXT", "", 0, "PLAINTEXT"),), None, fenced=False, clean=True)
LED, LEADERLESS = PartitionImage((0,), (0,), 0), PartitionImage((0,), (), NO_LEADER)


def image_of(*partitions: PartitionImage) -> tuple[Image, TopicImage]:
    topic = TopicImage("orders", b"i" * 16, partitions)
    return replace(EMPTY, brokers=EMPTY.brokers.set(0, BROKER)), topic


@pytest.mark.parametrize("version", metadata.VERSIONS)
def test_a_piece_is_what_the_topic_would_have_been_written_as(version: int) -> None:
    # In every version an answer made of pieces has the bytes of one made of messages.
    image, topic = image_of(LED, LED)
    pieces = Pieces.of(image)
    assert Pieces.of(image) is pieces

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
    described = Pieces.of(image).topic(image, topic, 12, False)
    assert error_codes(MetadataResponse(topics=[described])) == [5]


def test_pieces_keep_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # A client that asks in every version for all topics does not fill the memory: later ones are written each time.
    monkeypatch.setattr(metadata, "PIECES_BYTES_MAX", 1000)
    image, topic = image_of(LED)
    pieces = Pieces.of(image)
    first, second = pieces.topic(image, topic, 12, False), pieces.topic(image, topic, 12, True)
    third, fourth = pieces.topic(image, topic, 11, False), pieces.topic(image, topic, 11, True)
    assert pieces.topic(image, topic, 12, False) is first and pieces.topic(image, topic, 12, True) is second
    assert third is pieces.topic(image, topic, 11, False)
    again = pieces.topic(image, topic, 11, True)
    assert again == fourth and again is not fourth
