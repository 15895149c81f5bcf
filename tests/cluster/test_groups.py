"""Groups and committed offsets in a cluster: internal topics, coordinators that move, members that go on."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer

import ottla.testing
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from ottla.cluster.topics import CONSUMER_OFFSETS
from ottla.errors import ErrorCode
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.cluster.coordination import choose_name, find_coordinator, open_client, wait_until_in_sync
from tests.raw_client import RawClient

WHERE = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3, group_initial_rebalance_delay_ms=0) as local:
        local.create_topic("orders", partitions=3)
        yield local


def ask_for_coordinator(broker: ClusterBroker, group: str) -> tuple[int, int, str, int]:
    """Error code, broker and address, as one broker answers."""
    with RawClient(broker.host, broker.port) as client:
        response = client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
    assert isinstance(response, FindCoordinatorResponse)
    (found,) = response.coordinators
    return found.error_code, found.node_id, found.host, found.port


def names(broker: ClusterBroker, group: str, coordinator: ClusterBroker) -> bool:
    expected = (ErrorCode.NONE, coordinator.id, coordinator.host, coordinator.port)
    return ask_for_coordinator(broker, group) == expected


def test_every_broker_names_the_same_coordinator_with_its_address(cluster: LocalCluster) -> None:
    named = set()
    for number in range(20):
        group = f"group-{number}"
        coordinator = find_coordinator(cluster, "group", group)
        for broker in cluster.brokers:
            wait_until(partial(names, broker, group, coordinator))
        named.add(coordinator.id)
    assert named == {1, 2, 3}, "all brokers share the work"


def test_brokers_that_start_one_after_the_other_wait_with_the_internal_topic() -> None:
    """One broker of three would otherwise keep the only replica for ever."""
    cluster = LocalCluster(3, {})
    try:
        first, second, third = cluster.brokers
        for broker in (first, second):
            broker.restart()
            assert ask_for_coordinator(first, "g")[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        third.restart()
        wait_until(lambda: ask_for_coordinator(first, "g")[0] == ErrorCode.NONE)
        topic = first.inspect(lambda broker: broker.node.image.topic(CONSUMER_OFFSETS))
        assert topic is not None and {len(state.replicas) for state in topic.partitions} == {3}
    finally:
        cluster.close()


def test_no_commit_is_lost_when_coordinators_are_killed(cluster: LocalCluster) -> None:
    """A commit that was acknowledged is what the next coordinator answers, kill after kill."""
    group = choose_name(cluster, "group", cluster.brokers[0])
    with open_client(cluster) as client:
        offset = 0
        for _ in range(3):
            for _ in range(20):
                offset += 1
                commit_offsets(client, group, {WHERE: CommittedOffset(offset, f"commit {offset}")})
            wait_until_in_sync(cluster, CONSUMER_OFFSETS)
            coordinator = find_coordinator(cluster, "group", group)
            coordinator.kill()
            assert fetch_offsets(client, group, [WHERE])[WHERE] == CommittedOffset(offset, f"commit {offset}")
            assert find_coordinator(cluster, "group", group) is not coordinator
            coordinator.restart()


def test_commits_under_way_are_all_or_nothing_while_coordinators_are_killed(cluster: LocalCluster) -> None:
    """Offsets never go back for somebody who reads them: neither after an acknowledged commit nor after a read."""
    group = choose_name(cluster, "group", cluster.brokers[0])
    acknowledged = 0
    stop = threading.Event()
    errors: list[BaseException] = []

    def commit() -> None:
        nonlocal acknowledged
        try:
            with open_client(cluster) as client:
                while not stop.is_set():
                    commit_offsets(client, group, {WHERE: CommittedOffset(acknowledged + 1)})
                    acknowledged += 1
        except BaseException as error:
            errors.append(error)

    committer = threading.Thread(target=commit)
    committer.start()
    try:
        with open_client(cluster) as client:
            seen = 0
            for number in range(3):
                wait_until(lambda goal=acknowledged + 50: acknowledged >= goal or bool(errors))  # type: ignore[misc]
                wait_until_in_sync(cluster, CONSUMER_OFFSETS)
                victim = find_coordinator(cluster, "group", group) if number else cluster.brokers[0]
                victim.kill()
                before = acknowledged
                read = fetch_offsets(client, group, [WHERE])[WHERE].offset
                assert read >= max(seen, before)
                seen = read
                victim.restart()
    finally:
        stop.set()
        committer.join()
    assert not errors


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_go_on_when_their_coordinator_is_killed(cluster: LocalCluster, protocol: str) -> None:
    """Every record arrives at least once, and what was committed is not read again."""
    group = choose_name(cluster, "group", cluster.brokers[0])
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        "reconnect.backoff.max.ms": 100,
    }
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "enable.idempotence": True})
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    seen: dict[tuple[int, int], bytes] = {}

    def produce_and_read(values: range) -> None:
        for number in values:
            producer.produce("orders", str(number).encode(), partition=number % 3)
        assert producer.flush() == 0
        wanted = {str(number).encode() for number in range(values.stop)}
        while set(seen.values()) != wanted:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                assert seen.setdefault((partition, offset), value) == value
        consumer.commit(asynchronous=False)

    try:
        produce_and_read(range(30))
        for number in range(1, 4):
            wait_until_in_sync(cluster, CONSUMER_OFFSETS, "orders")
            victim = find_coordinator(cluster, "group", group)
            victim.kill()
            produce_and_read(range(30 * number, 30 * (number + 1)))
            victim.restart()
    finally:
        consumer.close()
    assert len(seen) == len(set(seen.values())) == 120, "an idempotent producer writes every record once"


def commit_at(broker: ClusterBroker, group: str, offset: int) -> int:
    """The error code with which this broker answers a commit."""
    partitions = [OffsetCommitRequestPartition(partition_index=WHERE.partition, committed_offset=offset)]
    topics = [OffsetCommitRequestTopic(name=WHERE.topic, partitions=partitions)]
    with RawClient(broker.host, broker.port) as client:
        response = client.request(OffsetCommitRequest(group_id=group, topics=topics), 9)
    assert isinstance(response, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


@pytest.mark.ottla(zookeeper_session_timeout_ms=2000, offsets_commit_timeout_ms=500)
def test_a_coordinator_that_lost_its_session_acknowledges_no_commit(ottla_cluster: LocalCluster) -> None:
    """It cannot know that another broker coordinates the group by now, but it has no replica that follows it."""
    ottla_cluster.create_topic("orders")
    old, other, _ = ottla_cluster.brokers
    group = choose_name(ottla_cluster, "group", old)
    with open_client(ottla_cluster) as client:
        commit_offsets(client, group, {WHERE: CommittedOffset(7)})
        wait_until_in_sync(ottla_cluster, CONSUMER_OFFSETS)
        ottla_cluster.cut_from_store(old)
        wait_until(lambda: not other.inspect(lambda each: each.node.image.serves(old.id)))
        assert commit_at(old, group, 99) in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        commit_offsets(client, group, {WHERE: CommittedOffset(8)})
        assert fetch_offsets(client, group, [WHERE])[WHERE].offset == 8
        ottla_cluster.heal()
        wait_until_in_sync(ottla_cluster, CONSUMER_OFFSETS)
        assert fetch_offsets(client, group, [WHERE])[WHERE].offset == 8
