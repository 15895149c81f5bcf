"""Faults that the fixture of a cluster offers: lost directories, a store that is away, cuts between brokers."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.cluster.changes import ConfigResource
from ottla.cluster.entities import PartitionImage
from ottla.errors import ErrorCode
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until
from ottla.wire.message import Message
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.cluster.test_fixture import alive_at
from tests.cluster.test_fixture_failover import TOPIC, Writer, is_complete, read_all
from tests.raw_client import RawClient


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3, min_insync_replicas=2) as local:
        local.create_topic(TOPIC, partitions=3)
        yield local


def leaders_at(broker: ClusterBroker) -> list[int]:
    """Who leads the topic's partitions, as one broker knows it."""
    image = broker.inspect(lambda each: each.node.image)
    return [state.leader for state in image.topics_by_name[TOPIC].partitions]


def test_an_emptied_directory_never_leads_while_a_complete_replica_exists(cluster: LocalCluster) -> None:
    writer = Writer(cluster.bootstrap)
    writer.send(300)
    writer.settle()
    wait_until(lambda: is_complete(cluster))
    first, second, emptied = cluster.brokers
    for broker in (first, second, emptied):
        broker.stop()
    shutil.rmtree(emptied.directory)
    os.mkdir(emptied.directory)
    emptied.restart()
    assert leaders_at(emptied) == [-1] * 3, "the partitions are offline, not empty"
    second.restart()
    wait_until(lambda: leaders_at(emptied) == [second.id] * 3)
    first.restart()
    wait_until(lambda: is_complete(cluster))
    assert sorted(read_all(cluster, 300)) == sorted(writer.acknowledged)


def ask(broker: ClusterBroker, request: Message, version: int) -> Any:
    with RawClient(broker.host, broker.port) as client:
        return client.request(request, version)


def create(broker: ClusterBroker, name: str, keeper: int, *, validate_only: bool = False) -> ErrorCode:
    """Have one broker create a topic that another one keeps."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[keeper])
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    answer: CreateTopicsResponse = ask(broker, CreateTopicsRequest(topics=[topic], validate_only=validate_only), 7)
    return ErrorCode(answer.topics[0].error_code)


def test_requests_that_change_nothing_are_answered_by_what_other_brokers_acknowledged(cluster: LocalCluster) -> None:
    # An admin client may ask any broker: what one has done, the next one must not deny.
    away, lagging, third = cluster.brokers
    away.stop()
    wait_until(lambda: alive_at(lagging) == alive_at(third) == [2, 3])

    cluster.store.lag(lagging.store_name)
    assert create(third, "new", third.id) == ErrorCode.NONE
    assert create(lagging, "new", third.id, validate_only=True) == ErrorCode.TOPIC_ALREADY_EXISTS

    cluster.store.lag(lagging.store_name)
    assert create(third, "newer", third.id) == ErrorCode.NONE
    grown = CreatePartitionsTopic(name="newer", count=2)
    more: CreatePartitionsResponse = ask(lagging, CreatePartitionsRequest(topics=[grown], validate_only=True), 3)
    assert more.results[0].error_code == ErrorCode.NONE, more.results[0].error_message

    cluster.store.lag(lagging.store_name)
    assert create(third, "newest", third.id) == ErrorCode.NONE
    asked = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=ConfigResource.TOPIC, resource_name="newest")]
    )
    (described,) = ask(lagging, asked, 4).results
    assert described.error_code == ErrorCode.NONE, described.error_message

    cluster.store.lag(lagging.store_name)
    moved = ReassignableTopic(name="new", partitions=[ReassignablePartition(partition_index=0, replicas=[away.id])])
    ask(third, AlterPartitionReassignmentsRequest(topics=[moved]), 0)
    moving: ListPartitionReassignmentsResponse = ask(lagging, ListPartitionReassignmentsRequest(), 0)
    assert [topic.name for topic in moving.topics] == ["new"]


def test_the_store_is_away(cluster: LocalCluster) -> None:
    writer = Writer(cluster.bootstrap)
    writer.send(300)
    writer.settle()
    read_all(cluster, 300)  # creates the topic of committed offsets
    cluster.stop_store()
    writer.send(300)
    writer.settle()
    assert len(read_all(cluster, 600)) == 600, "topics are written and read as before"
    topic = CreatableTopic(name="later", num_partitions=1, replication_factor=1)
    with RawClient(cluster.brokers[0].host, cluster.brokers[0].port) as client:
        answer = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=200), 7)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "metadata" in (answer.topics[0].error_message or "")
    cluster.heal()
    cluster.create_topic("afterwards")


@pytest.mark.parametrize("both", [True, False], ids=["both ways", "one way"])
def test_brokers_that_are_cut_off_from_each_other_catch_up(both: bool) -> None:
    with ottla.testing.cluster(brokers=3, min_insync_replicas=2, replica_lag_time_max_ms=1000) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        writer = Writer(cluster.bootstrap)
        writer.send(300)
        writer.settle()
        cluster.cut(cluster.brokers[0], cluster.brokers[1], both=both)
        writer.send(300)
        writer.settle()
        cluster.heal()
        wait_until(lambda: is_complete(cluster))
        assert sorted(read_all(cluster, 600)) == sorted(writer.acknowledged)


def test_a_failed_directory_takes_only_its_replicas_offline() -> None:
    with ottla.testing.cluster(brokers=3, min_insync_replicas=2) as cluster:
        broker, witness, _ = cluster.brokers
        broker.stop()
        shutil.rmtree(broker.directory)
        directories = [os.path.join(broker.directory, name) for name in ("one", "two")]
        broker._config = broker._config.with_changes({"log.dirs": ",".join(directories)})
        broker.restart()
        wait_until(lambda: witness.inspect(lambda each: each.node.image.serves(broker.id)))
        cluster.create_topic(TOPIC, partitions=6)
        writer = Writer(cluster.bootstrap)
        writer.send(600)
        writer.settle()
        wait_until(lambda: is_complete(cluster))
        failed = broker.inspect(fail_second_directory)
        assert len(failed) == 3
        wait_until(lambda: offline_at(witness) == dict.fromkeys(failed, (broker.id,)))
        assert all(leader not in (-1, broker.id) for leader in (leaders_at(witness)[index] for index in failed))
        writer.send(600)
        writer.settle()
        assert sum(broker.id in state.isr for state in partitions_at(witness)) == 3, "the other directory goes on"
        broker.restart()
        wait_until(lambda: is_complete(cluster))
        assert sorted(read_all(cluster, 1200)) == sorted(writer.acknowledged)


def fail_second_directory(broker: Broker) -> list[int]:
    """Returns the partitions of the topic that the directory holds."""
    directory = broker.node.replicas.directories[1]
    held = sorted(partition.index for partition in broker.node.replicas.group_by_directory()[directory])
    broker.node.replication.failures.fail(directory, "a test asked for it")
    return held


def partitions_at(broker: ClusterBroker) -> tuple[PartitionImage, ...]:
    return broker.inspect(lambda each: each.node.image.topics_by_name[TOPIC].partitions)


def offline_at(broker: ClusterBroker) -> dict[int, tuple[int, ...]]:
    """Partitions with replicas whose directory failed, and which replicas these are."""
    return {index: state.offline for index, state in enumerate(partitions_at(broker)) if state.offline}
