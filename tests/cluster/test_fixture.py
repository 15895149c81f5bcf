"""`ottla.testing.cluster` as its users see it: brokers that form a cluster, and can be stopped one by one."""

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.raw_client import RawClient


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3) as local:
        yield local


def ask_metadata(broker: ClusterBroker, *topics: str) -> MetadataResponse:
    """Metadata as one broker tells it, without having a topic created."""
    asked = [MetadataRequestTopic(name=topic) for topic in topics]
    with RawClient(broker.host, broker.port) as client:
        response = client.request(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12)
    assert isinstance(response, MetadataResponse)
    return response


def alive_at(broker: ClusterBroker) -> list[int]:
    """The brokers that are alive, as one of them knows it."""
    return broker.inspect(lambda each: [alive.id for alive in each.node.image.alive_brokers()])


def test_every_broker_knows_all_of_them_and_takes_every_request(cluster: LocalCluster) -> None:
    for broker in cluster.brokers:
        wait_until(lambda broker=broker: alive_at(broker) == [1, 2, 3])  # type: ignore[misc]
        answer = ask_metadata(broker)
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
            (each.id, each.host, each.port) for each in cluster.brokers
        ]
        assert answer.controller_id == broker.id, "admin clients stay where they are"
        broker.create_topic(f"made-by-{broker.id}")


def test_a_topic_that_one_broker_created_is_known_to_the_next_at_once(cluster: LocalCluster) -> None:
    for number in range(20):
        creator, other = cluster.brokers[number % 3], cluster.brokers[(number + 1) % 3]
        creator.create_topic(f"topic-{number}")
        (topic,) = ask_metadata(other, f"topic-{number}").topics
        assert topic.error_code == 0
        assert sorted(topic.partitions[0].replica_nodes) == [1, 2, 3]


def test_a_broker_that_is_killed_is_fenced_at_once_and_comes_back(cluster: LocalCluster) -> None:
    cluster.create_topic("orders", partitions=3)
    killed, *others = cluster.brokers
    killed.kill()
    for other in others:
        wait_until(lambda other=other: alive_at(other) == [2, 3])  # type: ignore[misc]
    leaders = [partition.leader_id for partition in ask_metadata(others[0], "orders").topics[0].partitions]
    assert set(leaders) <= {2, 3}
    killed.restart()
    wait_until(lambda: alive_at(others[0]) == [1, 2, 3])


def test_a_broker_that_stops_says_so(cluster: LocalCluster) -> None:
    stopped, *others = cluster.brokers
    stopped.stop()
    wait_until(lambda: alive_at(others[0]) == [2, 3])
    stopped.restart()
    wait_until(lambda: alive_at(others[0]) == [1, 2, 3])


@pytest.mark.ottla(brokers=1, num_partitions=2)
def test_the_pytest_fixture_takes_settings(ottla_cluster: LocalCluster) -> None:
    (broker,) = ottla_cluster.brokers
    ottla_cluster.create_topic("orders", partitions=-1)
    assert len(ask_metadata(broker, "orders").topics[0].partitions) == 2


def test_time_passes_for_all_brokers_at_once(cluster: LocalCluster) -> None:
    cluster.create_topic("orders", partitions=3)
    before = [broker.now_ms for broker in cluster.brokers]
    cluster.advance(hours=2)
    assert all(broker.now_ms - earlier >= 7_200_000 for broker, earlier in zip(cluster.brokers, before, strict=True))
    for broker in cluster.brokers:
        wait_until(lambda broker=broker: alive_at(broker) == [1, 2, 3])  # type: ignore[misc]
        broker.create_topic(f"afterwards-{broker.id}")
    with pytest.raises(ValueError, match="of one broker"):
        cluster.brokers[0].advance(hours=1)


@pytest.mark.parametrize("process", [False, True])
def test_at_the_end_no_broker_misses_another(
    process: bool, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """pytest shows what is logged until the end of a test that failed."""
    with ottla.testing.cluster(brokers=3, process=process) as local:
        local.create_topic("orders", partitions=6)
        caplog.clear()
        capfd.readouterr()
    logged = "\n".join([*(record.getMessage() for record in caplog.records), capfd.readouterr().err])
    assert "gone" not in logged


def test_pytest_shows_what_the_brokers_of_a_failed_test_do(cluster: LocalCluster) -> None:
    first, second, third = cluster.brokers
    second.pause()
    third.kill()
    assert repr(first) == f"<broker 1 at {first.bootstrap}, running>"
    assert repr(cluster) == f"<cluster of {first!r}, {second!r}, {third!r}>"
    assert (repr(second).split()[-1], repr(third).split()[-1]) == ("paused>", "down>")
    with ottla.testing.broker() as alone:
        assert repr(alone) == f"<broker at {alone.bootstrap}, running>"
