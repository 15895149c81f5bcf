"""The client with a real broker: topics, offsets, leaders, and what happens when the broker is down."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.client import (
    EARLIEST,
    LATEST,
    Client,
    FoundOffset,
    UnknownTopic,
    close_shared_clients,
    find_error_codes,
    get_shared_client,
)
from ottla.client.connection import Connection, Unreachable
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import encode
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData
from tests.patience import PATIENCE_MS

QUICK = {"default.api.timeout.ms": "300", "retry.backoff.ms": "10"}


@pytest.fixture
def client(ottla_broker: LocalBroker) -> Iterator[Client]:
    found = Client({"bootstrap.servers": ottla_broker.bootstrap, "retry.backoff.ms": "10"})
    yield found
    found.close()


def append(client: Client, topic: str, partition: int, timestamps: list[int]) -> None:
    batch = encode([(None, b"value", (), timestamp) for timestamp in timestamps])
    data = [PartitionData(partition, memoryview(batch))]
    topics = [TopicData(name=topic, topic_id=client.find_topic_id(topic), partitions=data)]
    answer = client.ask_leader(topic, partition, ProduceRequest(acks=-1, timeout_ms=PATIENCE_MS, topics=topics))
    assert not list(find_error_codes(answer))


def test_topics_by_name_and_by_pattern(ottla_broker: LocalBroker, client: Client) -> None:
    # Patterns must match the whole name. A topic that is added later is found.
    for name, partitions in (("events", 3), ("events.old", 1), ("metrics", 2)):
        ottla_broker.create_topic(name, partitions)
    assert client.count_partitions(["metrics", "events"]) == {"events": 3, "metrics": 2}
    assert client.count_partitions(pattern="events.*") == {"events": 3, "events.old": 1}
    assert client.count_partitions(pattern="event") == {}
    with pytest.raises(ValueError, match="regular expression"):
        client.count_partitions(pattern="(")


def test_a_missing_topic_or_partition_is_reported_soon(ottla_broker: LocalBroker) -> None:
    client = Client({"bootstrap.servers": ottla_broker.bootstrap, **QUICK})
    ottla_broker.create_topic("events")
    with pytest.raises(UnknownTopic, match="there is no topic 'evnts'"):
        client.count_partitions(["evnts"])
    with pytest.raises(UnknownTopic, match="no partition 7"):
        client.find_leader("events", 7)
    client.close()


def test_offsets_are_listed_by_position_and_by_time(ottla_broker: LocalBroker, client: Client) -> None:
    ottla_broker.create_topic("events", 2)
    append(client, "events", 0, [1000, 2000, 3000])
    first, second = TopicPartition("events", 0), TopicPartition("events", 1)
    ends = client.list_offsets({first: LATEST, second: LATEST})
    assert {where: found.offset for where, found in ends.items()} == {first: 3, second: 0}
    assert client.list_offsets({first: EARLIEST})[first].offset == 0
    assert client.list_offsets({first: 1500})[first] == FoundOffset(1, 2000)
    assert client.list_offsets({first: 3001})[first].offset == -1


def test_retriable_errors_are_retried(ottla_broker: LocalBroker, client: Client) -> None:
    # The caller sees neither a retriable error nor a lost connection.
    ottla_broker.create_topic("events")
    where = TopicPartition("events", 0)
    ottla_broker.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert client.list_offsets({where: LATEST})[where].offset == 0
    ottla_broker.drop("ListOffsets")
    assert client.list_offsets({where: LATEST})[where].offset == 0
    ottla_broker.drop("Metadata")
    client.forget_topic("events")
    assert client.count_partitions(["events"]) == {"events": 1}
    ottla_broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
    append(client, "events", 0, [1])
    assert client.list_offsets({where: LATEST})[where].offset == 1


def test_many_requests_are_answered_in_their_order(ottla_broker: LocalBroker, client: Client) -> None:
    # Some are under way when the connection is lost; the caller notices nothing.
    names = [f"topic-{number}" for number in range(9)]
    for name in names:
        ottla_broker.create_topic(name)

    def requests() -> Iterator[MetadataRequest]:
        for number, name in enumerate(names):
            if number == 4:
                ottla_broker.drop("Metadata")
            yield MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)

    assert [answer.topics[0].name for answer in client.ask_any_in_turn(requests())] == names


def test_answers_that_nobody_waits_for_are_dropped(ottla_broker: LocalBroker, client: Client) -> None:
    ottla_broker.create_topic("events")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="events")], allow_auto_topic_creation=False)
    answers = client.ask_any_in_turn([request] * 9)
    assert next(answers).topics[0].name == "events"
    answers.close()
    assert client.count_partitions(["events"]) == {"events": 1}
    assert not client.connect_any()._early


def test_a_connection_that_cannot_send_is_not_used_again(
    ottla_broker: LocalBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Half of a request may have been sent, and the next one would continue it.
    ottla_broker.create_topic("events")
    broken = client.connect_any()
    send, attempts = Connection.send, []

    def send_unless_broken(self: Connection, *arguments: Any) -> Any:
        if self is broken:
            attempts.append(arguments)
            raise Unreachable("no answer in time")
        return send(self, *arguments)

    monkeypatch.setattr(Connection, "send", send_unless_broken)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="events")], allow_auto_topic_creation=False)
    answers = client.ask_any_in_turn([request] * 4)
    assert [answer.topics[0].name for answer in answers] == ["events"] * 4
    assert len(attempts) == 1


def test_a_broker_that_restarts_is_found_again(ottla_broker: LocalBroker, client: Client) -> None:
    ottla_broker.create_topic("events")
    append(client, "events", 0, [1])
    ottla_broker.kill()
    ottla_broker.restart()
    append(client, "events", 0, [2])
    where = TopicPartition("events", 0)
    assert client.list_offsets({where: LATEST})[where].offset == 2


def test_the_coordinator_of_a_group_answers(ottla_broker: LocalBroker, client: Client) -> None:
    # The request is repeated while the coordinator loads, and after it has moved.
    ottla_broker.fail("OffsetFetch", "NOT_COORDINATOR")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="readers", topics=None)], require_stable=True)
    answer = client.ask_coordinator("group", "readers", request)
    assert [group.group_id for group in answer.groups] == ["readers"]
    assert not list(find_error_codes(answer))


def test_other_errors_are_not_retried(ottla_broker: LocalBroker, client: Client) -> None:
    ottla_broker.create_topic("events")
    ottla_broker.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(KafkaError) as raised:
        client.list_offsets({TopicPartition("events", 0): LATEST})
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_stopped_broker_is_reported_in_one_line(ottla_broker: LocalBroker) -> None:
    client = Client({"bootstrap.servers": ottla_broker.bootstrap, **QUICK})
    ottla_broker.stop()
    with pytest.raises(Unreachable, match=f"{ottla_broker.bootstrap}: connection refused"):
        client.count_partitions(["events"])


def test_a_pickled_client_keeps_its_settings() -> None:
    client = Client({"bootstrap.servers": "one:9092"})
    copy = pickle.loads(pickle.dumps(client))
    assert copy is pickle.loads(pickle.dumps(client)) is get_shared_client({"bootstrap.servers": "one:9092"})
    assert copy is not get_shared_client({"bootstrap.servers": "two:9092"})


def test_shared_clients_can_be_closed_and_forgotten(ottla_broker: LocalBroker) -> None:
    client = get_shared_client({"bootstrap.servers": ottla_broker.bootstrap})
    ottla_broker.create_topic("seen")
    client.count_partitions(["seen"])
    assert client._connections
    close_shared_clients()
    assert not client._connections
    assert get_shared_client({"bootstrap.servers": ottla_broker.bootstrap}) is not client
