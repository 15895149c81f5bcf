"""Topics: names, creation and deletion, and requests for a topic that was deleted."""

from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.description import TopicDescriptions
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kafka_peer import Clients
from tests.patience import PATIENCE_MS
from tests.raw_client import RawClient
from tests.scenarios.client_calls import (
    LATEST,
    append,
    await_topic,
    connect,
    create_topic,
    delete_topic,
    describe_topic,
    find_topic_id,
    list_offset,
    make_batch,
    produce_batch,
    read_all_values,
)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc/passwd", "a" * 250, "a b", "a\0b", "größe", "a\nb", "a:b", "💥", "%2e%2e"],
)
def test_an_illegal_topic_name_is_refused(name: str, shared_broker: LocalBroker, client: RawClient) -> None:
    # INVALID_TOPIC_EXCEPTION from CreateTopics and from Metadata that would create the topic; nothing appears on the
    # disk.
    directory = Path(shared_broker.directory)
    before = {path.name for path in directory.iterdir()}
    assert create_topic(client, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert describe_topic(client, name, create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    code = produce_batch(client, name, make_batch(b"x")).error_code
    assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert not {path.name for path in directory.iterdir() if path.is_dir()} - before
    assert not (directory.parent / "x-0").exists()


@pytest.mark.parametrize("name", ["a" * 249, "A.b_c-9", "...", "-", "_"])
def test_an_unusual_but_legal_topic_name_works(name: str, client: RawClient) -> None:
    assert create_topic(client, name).error_code == 0
    append(client, name, b"x")
    assert read_all_values(client, name) == [b"x"]
    assert delete_topic(client, name) == 0


def test_defaults_are_looked_up_once_for_all_topics_of_a_request(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[TopicDescriptions] = []

    def describe(config: BrokerConfig) -> TopicDescriptions:
        made.append(TopicDescriptions(config))
        return made[-1]

    monkeypatch.setattr("ottla.handlers.create_topics.TopicDescriptions", describe)
    wanted = [CreatableTopic(name=f"of-many-{number}", num_partitions=1, replication_factor=1) for number in range(3)]
    answer = client.request(CreateTopicsRequest(topics=wanted, timeout_ms=PATIENCE_MS), 7)
    assert [topic.error_code for topic in answer.topics] == [0, 0, 0]
    assert all(topic.configs for topic in answer.topics)
    assert len(made) == 1


def test_names_that_differ_only_in_dot_and_underscore_collide(client: RawClient) -> None:
    # Metrics could not tell them apart, so Kafka refuses the second one.
    assert create_topic(client, "metrics.of_one").error_code == 0
    assert create_topic(client, "metrics_of.one").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert describe_topic(client, "metrics_of_one", create=True).error_code != 0
    assert delete_topic(client, "metrics.of_one") == 0
    assert create_topic(client, "metrics_of.one").error_code == 0


def test_a_topic_exists_before_its_creation_is_answered(client: RawClient, other: RawClient) -> None:
    # It is visible on every connection, in Metadata and in the log. A deleted topic is gone as early.
    for number in range(10):
        name = f"at-once-{number}"
        assert create_topic(client, name).error_code == 0
        assert describe_topic(other, name).error_code == 0
        assert append(other, name, b"x") == 0
        assert delete_topic(client, name) == 0
        assert describe_topic(other, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produce_batch(other, name, make_batch(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("restart", ("none", "stop", "kill"))
def test_a_topic_that_is_created_again_has_nothing_of_the_old_one(restart: str) -> None:
    # The new topic has another id, offsets from 0, and no old record. A request with the old id gets UNKNOWN_TOPIC_ID.
    with local_broker() as broker:
        broker.create_topic("again")
        with connect(broker) as client:
            append(client, "again", b"old", b"old")
            old = find_topic_id(client, "again")
            assert delete_topic(client, "again") == 0
            assert create_topic(client, "again").error_code == 0
            if restart == "none":
                append(client, "again", b"new")
        if restart != "none":
            getattr(broker, restart)()
            broker.restart()
            with connect(broker) as client:
                append(client, "again", b"new")
        with connect(broker) as client:
            new = find_topic_id(client, "again")
            assert new != old
            assert read_all_values(client, "again") == read_all_values(client, new) == [b"new"]
            assert list_offset(client, "again", LATEST).offset == 1
            assert client.fetch(old, 0, 0).error_code == ErrorCode.UNKNOWN_TOPIC_ID
            assert produce_batch(client, old, make_batch(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
            request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=old)])
            assert client.request(request, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("moment", ("stop", "kill"))
def test_a_deleted_topic_does_not_come_back(moment: str) -> None:
    # The broker is killed before it has removed the files. They are removed or set aside, and no later topic of the
    # name finds them.
    with local_broker() as broker:
        broker.create_topic("gone")
        with connect(broker) as client:
            append(client, "gone", b"old")
            assert delete_topic(client, "gone") == 0
        getattr(broker, moment)()
        broker.restart()
        with connect(broker) as client:
            assert describe_topic(client, "gone").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert create_topic(client, "gone").error_code == 0
            assert read_all_values(client, "gone") == []
        broker.advance(minutes=5)
        assert not list(Path(broker.directory).glob("gone-0.*-delete"))


def test_deletion_by_id(client: RawClient, topic: str) -> None:
    # The answer has the name. An unknown id is refused, and so is a request with name and id.
    found_id = find_topic_id(client, topic)
    states = [
        DeleteTopicState(name=None, topic_id=found_id),
        DeleteTopicState(name=None, topic_id=b"0123456789abcdef"),
        DeleteTopicState(name="both", topic_id=b"fedcba9876543210"),
    ]
    answer = client.request(DeleteTopicsRequest(topics=states, timeout_ms=PATIENCE_MS), 6)
    assert [(each.name, each.error_code) for each in answer.responses] == [
        (topic, 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("both", ErrorCode.INVALID_REQUEST),
    ]


def test_creation_is_checked_topic_by_topic(client: RawClient, topic: str) -> None:
    # Each topic of one request has its own answer, and those that can be created are.
    wrong = [
        (CreatableTopic(name=topic, num_partitions=1, replication_factor=1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic(name="no-parts", num_partitions=0, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="copies", num_partitions=1, replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic(name="fine", num_partitions=2, replication_factor=-1), ErrorCode.NONE),
    ]
    request = CreateTopicsRequest(topics=[asked for asked, _ in wrong], timeout_ms=PATIENCE_MS)
    codes = {each.name: each.error_code for each in client.request(request, 7).topics}
    assert codes == {asked.name: code for asked, code in wrong}
    assert len(describe_topic(client, "fine").partitions) == 2
    assert create_topic(client, "odd", configs={"no.such.setting": "1"}).error_code == ErrorCode.INVALID_CONFIG
    assert create_topic(client, "odd", configs={"retention.ms": "soon"}).error_code == ErrorCode.INVALID_CONFIG


def test_a_topic_that_a_request_names_twice_is_not_created(client: RawClient) -> None:
    twice = CreatableTopic(name="twice", num_partitions=1, replication_factor=1)
    (result,) = client.request(CreateTopicsRequest(topics=[twice, twice], timeout_ms=PATIENCE_MS), 7).topics
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert describe_topic(client, "twice").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_validation_only_creates_nothing(client: RawClient) -> None:
    asked = CreatableTopic(name="dry-run", num_partitions=7, replication_factor=1)
    (result,) = client.request(CreateTopicsRequest(topics=[asked], validate_only=True), 7).topics
    assert (result.error_code, result.num_partitions) == (0, 7)
    assert describe_topic(client, "dry-run").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_metadata_creates_a_missing_topic_unless_the_client_forbids_it(client: RawClient) -> None:
    # A client may forbid creation in its request, from version 4 on.
    assert describe_topic(client, "unasked", create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create_by_metadata(client, "asked", 12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create_by_metadata(client, "asked-by-old", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def create_by_metadata(client: RawClient, name: str, version: int) -> int:
    """Ask for metadata until an answer has the topic. Returns the error code of the first answer."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    first: int = client.request(request, version).topics[0].error_code
    await_topic(client, name)
    return first


def test_a_deleted_topic_is_gone_before_asking_creates_it_again(both_clients: Clients) -> None:
    # As in Apache Kafka, the first answer after a deletion does not have the topic, and a later one does. A client that
    # deletes a topic and then checks that it is gone may allow creation in its request without intending it.
    for client in both_clients:
        create_topic(client, "fleeting")
        await_topic(client, "fleeting")
        assert delete_topic(client, "fleeting") == 0
        await_topic(client, "fleeting", exists=False)
        assert create_by_metadata(client, "fleeting", 12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_created_for_a_client_that_has_left(shared_broker: LocalBroker, client: RawClient) -> None:
    # The connection is closed with the request in it.
    request = MetadataRequest(topics=[MetadataRequestTopic(name="left-behind")])
    with connect(shared_broker) as hasty:
        hasty.send_request(request, 12)
    await_topic(client, "left-behind")


def test_the_broker_may_forbid_auto_creation_and_deletion_and_set_the_defaults() -> None:
    with (
        local_broker(auto_create_topics_enable=False, delete_topic_enable=False, num_partitions=5) as broker,
        connect(broker) as client,
    ):
        assert describe_topic(client, "unasked", create=True).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert create_topic(client, "default", partitions=-1).num_partitions == 5
        assert delete_topic(client, "default") == ErrorCode.TOPIC_DELETION_DISABLED
        assert describe_topic(client, "default").error_code == 0
