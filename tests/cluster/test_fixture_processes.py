"""A cluster for tests whose brokers are child processes: killed with SIGKILL, held with SIGSTOP, and cut off."""

import os
from collections.abc import Iterator

import psutil
import pytest

import ottla.testing
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.cluster.test_fixture_failover import TOPIC, Writer, read_all
from tests.raw_client import RawClient

SESSION_MS = 1000


def find_children() -> set[int]:
    """The brokers in child processes of this one. Fixtures of other tests may have left some running."""
    return {child.pid for child in psutil.Process().children() if "ottla.testing" in child.cmdline()}


@pytest.fixture
def others() -> set[int]:
    return find_children()


@pytest.fixture
def cluster(others: set[int]) -> Iterator[LocalCluster]:
    with ottla.testing.cluster(
        brokers=3,
        process=True,
        min_insync_replicas=2,
        zookeeper_session_timeout_ms=SESSION_MS,
        replica_lag_time_max_ms=1000,
    ) as local:
        local.create_topic(TOPIC, partitions=3)
        yield local


def describe(broker: ClusterBroker) -> MetadataResponse:
    with RawClient(broker.host, broker.port) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        answer = client.request(request, 12)
        assert isinstance(answer, MetadataResponse)
        return answer


def find_alive(witness: ClusterBroker) -> list[int]:
    with RawClient(witness.host, witness.port) as client:
        return sorted(broker.broker_id for broker in client.request(DescribeClusterRequest(), 2).brokers)


def is_complete(witness: ClusterBroker) -> bool:
    return all(len(partition.isr_nodes) == 3 for partition in describe(witness).topics[0].partitions)


def test_killed_and_paused_processes_lose_nothing(cluster: LocalCluster, others: set[int]) -> None:
    first, second, third = cluster.brokers
    assert len(find_children() - others) == 3
    writer = Writer(cluster.bootstrap)
    writer.send(500)
    first.kill()
    writer.send(500)
    writer.settle()
    first.restart()
    wait_until(lambda: is_complete(third))
    second.pause()
    writer.send(500)
    wait_until(lambda: second.id not in find_alive(third))  # its session has expired, because it sends no heartbeat
    second.resume()
    writer.settle()
    wait_until(lambda: is_complete(third))
    assert sorted(read_all(cluster, 1500)) == sorted(writer.acknowledged)


def test_cuts_between_processes_and_from_the_store(cluster: LocalCluster) -> None:
    first, second, third = cluster.brokers
    writer = Writer(cluster.bootstrap)
    cluster.cut(first, second)
    writer.send(300)
    wait_until(lambda: not is_complete(third))  # a follower does not get what its leader has
    writer.settle()
    cluster.heal()
    wait_until(lambda: is_complete(third))
    cluster.cut_from_store(first)
    wait_until(lambda: first.id not in find_alive(third))
    writer.send(300)
    writer.settle()
    cluster.heal()
    wait_until(lambda: find_alive(third) == [1, 2, 3] and is_complete(third))
    cluster.stop_store()
    writer.send(300)
    writer.settle()
    cluster.heal()
    cluster.create_topic("afterwards")
    assert sorted(read_all(cluster, 900)) == sorted(writer.acknowledged)


def test_the_clock_and_the_end(others: set[int]) -> None:
    with ottla.testing.cluster(brokers=3, process=True) as cluster:
        cluster.create_topic(TOPIC)
        broker = cluster.brokers[0]
        with pytest.raises(ValueError, match="cannot be inspected"):
            broker.inspect(lambda each: each)
        before = broker.now_ms
        cluster.advance(hours=1)
        assert broker.now_ms - before >= 3_600_000
        assert find_alive(broker) == [1, 2, 3], "no session expired"
        broker.pause()
    assert not any(os.path.exists(each.directory) for each in cluster.brokers)
    assert find_children() <= others
