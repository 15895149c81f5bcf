"""The pipeline's view of a cluster, with a real broker: topics, offsets, leaders, and what happens when it is away."""

import pickle
from collections.abc import Iterator

import pytest

from ottla.client.client import (
    EARLIEST,
    LATEST,
    Cluster,
    FoundOffset,
    TopicPartition,
    UnknownTopic,
    close_shared,
    error_codes,
    shared,
)
from ottla.client.connection import Unreachable
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import encode
from ottla.testing import LocalBroker
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData

QUICK = {"default.api.timeout.ms": "300", "retry.backoff.ms": "10"}


@pytest.fixture
def cluster(ottla_broker: LocalBroker) -> Iterator[Cluster]:
    found = Cluster({"bootstrap.servers": ottla_broker.bootstrap, "retry.backoff.ms": "10"})
    yield found
    found.close()


def append(cluster: Cluster, topic: str, partition: int, timestamps: list[int]) -> None:
    batch = encode([(None, b"value", (), timestamp) for timestamp in timestamps])
    data = [PartitionData(partition, memoryview(batch))]
    topics = [TopicData(name=topic, topic_id=cluster.topic_id(topic), partitions=data)]
    answer = cluster.ask_leader(topic, partition, ProduceRequest(acks=-1, timeout_ms=5000, topics=topics))
    assert not list(error_codes(answer))


def test_topics_by_name_and_by_pattern(ottla_broker: LocalBroker, cluster: Cluster) -> None:
    # Patterns must fit the whole name; a topic that is added later is seen.
    for name, partitions in (("events", 3), ("events.old", 1), ("metrics", 2)):
        ottla_broker.create_topic(name, partitions)
    assert cluster.topics(["metrics", "events"]) == {"events": 3, "metrics": 2}
    assert cluster.topics(pattern="events.*") == {"events": 3, "events.old": 1}
    assert cluster.topics(pattern="event") == {}
    with pytest.raises(ValueError, match="regular expression"):
        cluster.topics(pattern="(")


def test_a_topic_or_partition_that_is_not_there_is_told_soon(ottla_broker: LocalBroker) -> None:
    cluster = Cluster({"bootstrap.servers": ottla_broker.bootstrap, **QUICK})
    ottla_broker.create_topic("events")
    with pytest.raises(UnknownTopic, match="there is no topic 'evnts'"):
        cluster.topics(["evnts"])
    with pytest.raises(UnknownTopic, match="no partition 7"):
        cluster.leader("events", 7)
    cluster.close()


def test_offsets_by_place_and_by_time(ottla_broker: LocalBroker, cluster: Cluster) -> None:
    ottla_broker.create_topic("events", 2)
    append(cluster, "events", 0, [1000, 2000, 3000])
    first, second = TopicPartition("events", 0), TopicPartition("events", 1)
    ends = cluster.offsets({first: LATEST, second: LATEST})
    assert {where: found.offset for where, found in ends.items()} == {first: 3, second: 0}
    assert cluster.offsets({first: EARLIEST})[first].offset == 0
    assert cluster.offsets({first: 1500})[first] == FoundOffset(1, 2000)
    assert cluster.offsets({first: 3001})[first].offset == -1


def test_answers_that_ask_for_another_try_get_one(ottla_broker: LocalBroker, cluster: Cluster) -> None:
    # An error that passes, and a connection that is lost: neither is seen by the caller.
    ottla_broker.create_topic("events")
    where = TopicPartition("events", 0)
    ottla_broker.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert cluster.offsets({where: LATEST})[where].offset == 0
    ottla_broker.drop("ListOffsets")
    assert cluster.offsets({where: LATEST})[where].offset == 0
    ottla_broker.drop("Metadata")
    cluster.forget("events")
    assert cluster.topics(["events"]) == {"events": 1}
    ottla_broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
    append(cluster, "events", 0, [1])
    assert cluster.offsets({where: LATEST})[where].offset == 1


def test_a_broker_that_restarts_is_found_again(ottla_broker: LocalBroker, cluster: Cluster) -> None:
    ottla_broker.create_topic("events")
    append(cluster, "events", 0, [1])
    ottla_broker.kill()
    ottla_broker.restart()
    append(cluster, "events", 0, [2])
    where = TopicPartition("events", 0)
    assert cluster.offsets({where: LATEST})[where].offset == 2


def test_the_coordinator_of_a_group_answers(ottla_broker: LocalBroker, cluster: Cluster) -> None:
    # While the coordinator loads, and after it has moved, the question is asked again.
    ottla_broker.fail("OffsetFetch", "NOT_COORDINATOR")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="readers", topics=None)], require_stable=True)
    answer = cluster.ask_coordinator("group", "readers", request)
    assert [group.group_id for group in answer.groups] == ["readers"]
    assert not list(error_codes(answer))


def test_errors_that_do_not_pass_are_not_tried_again(ottla_broker: LocalBroker, cluster: Cluster) -> None:
    ottla_broker.create_topic("events")
    ottla_broker.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(KafkaError) as raised:
        cluster.offsets({TopicPartition("events", 0): LATEST})
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_broker_that_is_away_is_one_line(ottla_broker: LocalBroker) -> None:
    cluster = Cluster({"bootstrap.servers": ottla_broker.bootstrap, **QUICK})
    ottla_broker.stop()
    with pytest.raises(Unreachable, match=f"{ottla_broker.bootstrap}: Connection refused"):
        cluster.topics(["events"])


def test_a_pickled_cluster_is_one_with_all_of_its_settings() -> None:
    cluster = Cluster({"bootstrap.servers": "one:9092"})
    copy = pickle.loads(pickle.dumps(cluster))
    assert copy is pickle.loads(pickle.dumps(cluster)) is shared({"bootstrap.servers": "one:9092"})
    assert copy is not shared({"bootstrap.servers": "two:9092"})


def test_shared_clusters_can_be_closed_and_forgotten(ottla_broker: LocalBroker) -> None:
    cluster = shared({"bootstrap.servers": ottla_broker.bootstrap})
    ottla_broker.create_topic("seen")
    cluster.topics(["seen"])
    assert cluster._connections
    close_shared()
    assert not cluster._connections
    assert shared({"bootstrap.servers": ottla_broker.bootstrap}) is not cluster
