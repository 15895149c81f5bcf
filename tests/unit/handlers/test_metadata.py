"""Answers to Metadata are assembled from cached pieces, and must always be what the image says."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.call import Call, Client
from ottla.broker.handler_table import VERSIONS
from ottla.broker.node import Node
from ottla.cluster import changes
from ottla.cluster.changes import NO_LEADER, Endpoint
from ottla.cluster.entities import BrokerImage, PartitionImage, TopicImage
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.recently_fenced import LISTED_S, RecentlyFenced
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode
from ottla.handlers import metadata
from ottla.handlers.metadata import EncodedPieces, describe
from ottla.security.operations import ON_TOPIC
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


@pytest.mark.parametrize("version", VERSIONS["metadata"])
def test_a_cached_piece_has_the_bytes_of_the_encoded_topic(version: int) -> None:
    # In every version an answer from pieces has the same bytes as one from messages.
    image, topic = image_of(LED, LED)
    pieces = EncodedPieces.of(image)
    assert EncodedPieces.of(image) is pieces

    def answer(topics: list[MetadataResponseTopic], brokers: bool) -> bytearray:
        broker = pieces.brokers(image, CLIENT, version, ()) if brokers else [metadata.describe_broker(BROKER, CLIENT)]
        return schema.encode(MetadataResponse, version, MetadataResponse(brokers=broker, topics=topics))

    described = describe(image, topic, version)
    plain = answer([described, described], brokers=False)
    for _ in range(2):  # first encoded, then found in the cache
        assert answer([pieces.topic(image, topic, version, None), described], brokers=True) == plain
    assert schema.decode(MetadataResponse, version, plain).topics[1].name == "orders"


def test_a_topic_with_an_error_is_counted_each_time() -> None:
    # An error is not cached as bytes, because nobody could count it there.
    image, topic = image_of(LED, LEADERLESS)
    described = EncodedPieces.of(image).topic(image, topic, 12, None)
    assert find_error_codes(MetadataResponse(topics=[described])) == [5]


def test_pieces_keep_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # A client that asks for all topics in every version does not fill the memory: later pieces are encoded each time.
    monkeypatch.setattr(metadata, "PIECES_BYTES_MAX", 1000)
    image, topic = image_of(LED)
    pieces = EncodedPieces.of(image)
    first, second = pieces.topic(image, topic, 12, None), pieces.topic(image, topic, 12, ON_TOPIC)
    third, fourth = pieces.topic(image, topic, 11, None), pieces.topic(image, topic, 11, ON_TOPIC)
    assert pieces.topic(image, topic, 12, None) is first and pieces.topic(image, topic, 12, ON_TOPIC) is second
    assert third is pieces.topic(image, topic, 11, None)
    again = pieces.topic(image, topic, 11, ON_TOPIC)
    assert again == fourth and again is not fourth


NOBODY = RecentlyFenced(lambda: 0.0, EMPTY)


def node_of(image: Image, recently_fenced: RecentlyFenced = NOBODY) -> Node:
    """A broker with this image that creates no topics."""
    config = BrokerConfig.of({"auto.create.topics.enable": "false"})
    parts = SimpleNamespace(
        broker_id=1, image=image, config=config, catch_up=None, authorizer=None, recently_fenced=recently_fenced
    )
    return cast(Node, parts)


def asked(
    image: Image,
    name: str | None,
    version: int = 12,
    client: Client = CLIENT,
    **options: Any,
) -> bytes | MetadataResponse:
    """The answer about one topic, from a broker with this image that creates no topics."""
    node = node_of(image)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], **options)
    return metadata.answer(node, Call(3, version, 1, None, request, client))


def named(image: Image, topic: TopicImage) -> Image:
    return replace(image, topics_by_name=image.topics_by_name.set(topic.name, topic))


@pytest.mark.parametrize("version", VERSIONS["metadata"])
def test_a_repeated_request_gets_the_same_bytes(version: int) -> None:
    # This holds in every version, and only for the same request: other flags and other addresses differ.
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


def test_pieces_outlive_a_change_of_another_topic() -> None:
    # An ISR changes many times a second in a large cluster: only its own topic is described again.
    image = EMPTY.replay(1, [changes.RegisterBroker(0, (bytes(16),), BROKER.endpoints)])
    image = image.replay(2, [changes.UnfenceBroker(0, 1)])
    for number, name in enumerate(("orders", "other")):
        created = (changes.CreateTopic(bytes([number + 1]) * 16, name), *two_partitions(bytes([number + 1]) * 16))
        image = image.replay(3 + number, created)
    asked(image, "orders")
    asked(image, "other")
    shrunk = image.replay(5, [changes.ChangePartition(b"\x02" * 16, 0, 0, isr=(0,))])
    assert shrunk.topics_by_name["other"] is not image.topics_by_name["other"]
    assert asked(shrunk, "orders") is asked(image, "orders")
    assert isinstance(asked(shrunk, "other"), MetadataResponse)
    joined = shrunk.replay(6, [changes.RegisterBroker(1, (b"1" * 16,), BROKER.endpoints)])
    assert isinstance(asked(joined, "orders"), MetadataResponse), "the list of brokers may differ"


def test_a_broker_that_was_fenced_is_listed_for_a_while() -> None:
    # It leads nothing from the first moment. Kept bytes are not given to clients when the time is over.
    now = 0.0
    recently_fenced = RecentlyFenced(lambda: now, EMPTY)
    before, topic = image_of(LED)
    before = named(replace(before, brokers=before.brokers.set(1, replace(BROKER, id=1))), topic)
    after = replace(before, brokers=before.brokers.set(1, FENCED))
    recently_fenced.follow(before, after)

    def list_brokers(*names: str, of_all_topics: bool = False) -> list[int]:
        topics = None if of_all_topics else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics)
        answer = metadata.answer(node_of(after, recently_fenced), Call(3, 12, 1, None, request, CLIENT))
        encoded = answer if isinstance(answer, bytes) else encode_answer(answer)
        return [broker.node_id for broker in schema.decode(MetadataResponse, 12, encoded).brokers]

    assert list_brokers("orders") == list_brokers("orders") == list_brokers("orders", "missing") == [0, 1]
    assert list_brokers() == list_brokers(of_all_topics=True) == [0], "whoever asks each broker asks none that is gone"
    now = LISTED_S + 1
    assert list_brokers("orders") == list_brokers("orders") == list_brokers("orders", "missing") == [0]


def test_all_brokers_are_listed_while_none_serves() -> None:
    # Also if one of them has served until a moment ago: it may be gone, and another one about to serve.
    recently_fenced = RecentlyFenced(lambda: 0.0, EMPTY)
    before, topic = image_of(LED)
    before = named(replace(before, brokers=before.brokers.set(1, FENCED)), topic)
    after = replace(before, brokers=before.brokers.set(0, replace(BROKER, fenced=True)))
    recently_fenced.follow(before, after)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    answer = metadata.answer(node_of(after, recently_fenced), Call(3, 12, 1, None, request, CLIENT))
    assert isinstance(answer, MetadataResponse)
    decoded = schema.decode(MetadataResponse, 12, encode_answer(answer))
    assert [broker.node_id for broker in decoded.brokers] == [0, 1]


def two_partitions(topic_id: bytes) -> tuple[changes.Change, ...]:
    return tuple(changes.CreatePartition(topic_id, number, (0, 7), (0, 7), 0) for number in range(2))


def test_pieces_make_room_for_those_of_a_newer_image(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces of topics that have changed are dropped when there is no room left, once for each image.
    monkeypatch.setattr(metadata, "PIECES_BYTES_MAX", 1000)
    image, topic = image_of(LED)
    pieces = EncodedPieces.of(image)
    for version in range(5, 13):
        pieces.topic(image, topic, version, None)
    newer = image.replay(1, [changes.SetFeature("a", 1)])
    assert EncodedPieces.of(newer) is pieces
    kept = pieces.topic(newer, topic, 4, None)
    assert pieces.topic(newer, topic, 4, None) is kept


def test_a_change_is_visible_at_once() -> None:
    # An image never changes: a new image has its own answers.
    image, topic = image_of(LED)
    before = named(image, topic)
    asked(before, "orders")
    after = named(before, replace(topic, partitions=(LED, LED)))
    told = asked(after, "orders")
    assert isinstance(told, MetadataResponse)
    assert len(schema.decode(MetadataResponse, 12, schema.encode(MetadataResponse, 12, told)).topics[0].partitions) == 2


@pytest.mark.parametrize("name", ["payments", "not a name", None, "orders"])
def test_an_answer_with_an_error_is_not_cached(name: str | None) -> None:
    # The topic is missing, the name is invalid, the id is unknown, or a partition has no leader.
    image = named(*image_of(LEADERLESS))
    for _ in range(2):
        told = asked(image, name)
        assert isinstance(told, MetadataResponse) and find_error_codes(told)


def test_a_leader_without_an_address_on_the_listener_is_an_error() -> None:
    # Clients of the other listener see the leader, and the bytes that are kept for them are given to no one else.
    internal = Endpoint("INTERNAL", "host-1", 9093, "PLAINTEXT")
    image, topic = image_of(PartitionImage((1, 0), (1, 0), 1))
    image = named(replace(image, brokers=image.brokers.set(1, replace(BROKER, id=1, endpoints=(internal,)))), topic)
    inside = Client(2, "INTERNAL", ("client", 1), ("here", 9093))

    def ask_twice(client: Client) -> tuple[list[int], int, int, list[int]]:
        first, second = (asked(image, "orders", 12, client) for _ in range(2))
        encoded = [each if isinstance(each, bytes) else encode_answer(each) for each in (first, second)]
        assert encoded[0] == encoded[1]
        told = schema.decode(MetadataResponse, 12, encoded[0])
        (partition,) = told.topics[0].partitions
        brokers = [broker.node_id for broker in told.brokers]
        return brokers, partition.error_code, partition.leader_id, partition.offline_replicas

    assert ask_twice(inside) == ([1], ErrorCode.NONE, 1, [0])
    assert ask_twice(CLIENT) == ([0], ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, [1])


Told = tuple[int, int, list[int], list[int]]
"""Error, leader, replicas and ISR of a partition."""


def told_of(partition: PartitionImage, version: int, away: BrokerImage | None) -> Told:
    """What version `version` says of a partition on the brokers 0 and 1. `away`: broker 1; None if it is no more."""
    image, topic = image_of(partition)
    if away is not None:
        image = replace(image, brokers=image.brokers.set(1, away))
    image = named(image, topic)
    for other in VERSIONS["metadata"]:
        asked(image, "orders", other)  # what is kept for other versions changes nothing
    answer = asked(image, "orders", version)
    if isinstance(answer, MetadataResponse):
        answer = bytes(schema.encode(MetadataResponse, version, answer))
    (found,) = schema.decode(MetadataResponse, version, answer).topics[0].partitions
    return found.error_code, found.leader_id, found.replica_nodes, found.isr_nodes


FENCED = replace(BROKER, id=1, fenced=True)
HIDDEN = replace(BROKER, id=1, endpoints=(Endpoint("INTERNAL", "host-1", 9093, "PLAINTEXT"),))


@pytest.mark.parametrize("away", [FENCED, HIDDEN, None], ids=["fenced", "without the listener", "unregistered"])
def test_version_0_leaves_out_replicas_that_are_away(away: BrokerImage | None) -> None:
    # As in Kafka's MetadataRequestTest.testReplicaDownResponse: an error of version 0 only, which has no other sign.
    both = PartitionImage((0, 1), (0,), 0)
    assert told_of(both, 0, away) == (ErrorCode.REPLICA_NOT_AVAILABLE, 0, [0], [0])
    assert told_of(both, 1, away) == (ErrorCode.NONE, 0, [0, 1], [0])
    assert told_of(both, 12, away) == (ErrorCode.NONE, 0, [0, 1], [0])
    assert told_of(PartitionImage((0, 1), (0, 1), 0), 0, away) == (ErrorCode.REPLICA_NOT_AVAILABLE, 0, [0], [0])
    assert told_of(PartitionImage((0, 1), (), NO_LEADER), 0, away) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [0], [])
    assert told_of(LED, 0, away) == (ErrorCode.NONE, 0, [0], [0])
    _, leader, *replicas = told_of(PartitionImage((1, 0), (1, 0), 1), 0, HIDDEN)
    assert (leader, replicas) == (NO_LEADER, [[0], [0]])


def encode_answer(response: MetadataResponse) -> bytes:
    return bytes(schema.encode(MetadataResponse, 12, response))


def list_answered(topics: list[MetadataRequestTopic], version: int) -> list[tuple[str | None, bytes, int]]:
    """Name, id and error of each topic in the answer to a request for these."""
    image = named(*image_of(LED))
    image = replace(image, topic_names=image.topic_names.set(b"i" * 16, "orders"))
    answer = metadata.handle(node_of(image), Call(3, version, 1, None, MetadataRequest(topics=topics), CLIENT))
    encoded = answer if isinstance(answer, bytes) else schema.encode(MetadataResponse, version, cast(Any, answer))
    found = schema.decode(MetadataResponse, version, encoded).topics
    return [(topic.name, topic.topic_id, topic.error_code) for topic in found]


@pytest.mark.parametrize("version", VERSIONS["metadata"])
def test_a_topic_that_is_named_twice_is_answered_once(version: int) -> None:
    # Kafka makes a set of the names: topics that exist, that are missing, and that are requested by id.
    topic_id = b"i" * 16 if version >= 10 else bytes(16)
    names = ["orders", "missing", "orders", "missing"]
    answered = list_answered([MetadataRequestTopic(name=name) for name in names], version)
    assert answered == [("orders", topic_id, 0), ("missing", bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    twice = [MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="orders")]
    assert list_answered(twice, version) == [("orders", topic_id, 0)]


@pytest.mark.parametrize("version", [each for each in VERSIONS["metadata"] if each >= 12])
def test_names_count_for_nothing_beside_ids(version: int) -> None:
    # As in Kafka, one id is enough for that, also of a topic that does not exist.
    known, unknown = b"i" * 16, b"u" * 16
    by_id = [MetadataRequestTopic(name=None, topic_id=each) for each in (known, unknown, known)]
    mixed = [MetadataRequestTopic(name="missing"), *by_id, MetadataRequestTopic(name="orders")]
    gone = (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID)
    assert list_answered(mixed, version) == [("orders", known, 0), gone]
    assert list_answered([MetadataRequestTopic(name="orders"), by_id[1]], version) == [gone]


def created(names: list[str], version: int = 12, broker_allows: bool = True, **options: Any) -> list[str]:
    """The topics whose creation a request for these names causes. Each is unknown in the answer."""
    requested: list[str] = []
    node = cast(
        Node,
        SimpleNamespace(
            broker_id=1,
            catch_up=None,
            authorizer=None,
            recently_fenced=NOBODY,
            image=named(*image_of(LED)),
            config=BrokerConfig.of({"auto.create.topics.enable": str(broker_allows).lower()}),
            auto_creation=SimpleNamespace(request=requested.extend),
            quotas=SimpleNamespace(controller_mutation=SimpleNamespace(is_active=False)),
        ),
    )
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)
    response = metadata.handle(node, Call(3, version, 1, None, request, CLIENT))
    assert isinstance(response, MetadataResponse)
    for topic in response.topics:
        if getattr(topic, "name", None) in requested:
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return requested


@pytest.mark.parametrize("version", VERSIONS["metadata"])
def test_the_creation_of_a_missing_topic_is_requested(version: int) -> None:
    # Requests for one topic and for several cause it. Existing topics and invalid names are not created.
    assert created(["payments"], version) == ["payments"]
    assert created(["payments", "orders", "not a name", "returns"], version) == ["payments", "returns"]
    assert created(["not a name"], version) == []


def test_the_client_and_the_broker_may_forbid_the_creation() -> None:
    # The client's field exists since version 4. Before, every client allowed it.
    assert created(["payments"], broker_allows=False) == []
    assert created(["payments"], 4, allow_auto_topic_creation=False) == []
    assert created(["payments"], 3, allow_auto_topic_creation=False) == ["payments"]
