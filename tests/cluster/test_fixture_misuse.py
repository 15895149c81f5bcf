"""What the fixture of a cluster says when a test asks for something that a broker cannot do which is down, paused or
closed: one sentence at once, where the test would otherwise wait for minutes."""

from collections.abc import Callable, Iterator

import pytest

import ottla.testing
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until


@pytest.fixture(scope="module", params=[False, True], ids=["threads", "processes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3, process=request.param) as local:
        yield local


def knows(broker: ClusterBroker, topic: str) -> bool:
    return bool(broker.ask("has_created", topic))


ORDERS: dict[str, Callable[[ClusterBroker], object]] = {
    "ask": lambda broker: broker.ask("count_alive"),
    "inspect": lambda broker: broker.inspect(lambda each: each.node.broker_id),
    "create_topic": lambda broker: broker.create_topic("unheard"),
    "snapshot": lambda broker: broker.snapshot(),
    "fail": lambda broker: broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER"),
    "clear_faults": lambda broker: broker.clear_faults(),
}


def test_a_paused_broker_takes_no_orders(cluster: LocalCluster) -> None:
    paused = cluster.brokers[1]
    before = [broker.now_ms for broker in cluster.brokers]
    paused.pause()
    for order in ORDERS.values():
        with pytest.raises(RuntimeError, match=r"broker 2 is paused, .*resume\(\)"):
            order(paused)
    with pytest.raises(RuntimeError, match="broker 2 is paused"):
        cluster.advance(hours=1)
    assert all(broker.now_ms - then < 3_600_000 for broker, then in zip(cluster.brokers, before, strict=True)), (
        "the clock of no broker has moved"
    )
    paused.resume()
    assert paused.ask("count_alive") >= 1


def test_a_broker_that_is_down_takes_no_orders(cluster: LocalCluster) -> None:
    down = cluster.brokers[2]
    down.kill()
    for order in (down.pause, down.resume, lambda: down.ask("count_alive"), lambda: down.metrics_port):
        with pytest.raises(RuntimeError, match=r"is down: restart\(\)"):
            order()
    cluster.start()


def test_a_topic_is_created_by_the_brokers_that_can(cluster: LocalCluster) -> None:
    # Those that cannot learn of it are not waited for: they learn of it later.
    down, paused, alone = cluster.brokers
    paused.pause()
    cluster.create_topic("beside-a-paused-broker")
    paused.resume()
    wait_until(lambda: knows(paused, "beside-a-paused-broker"))

    down.stop()
    cluster.cut_from_store(alone)
    cluster.create_topic("beside-two", replication_factor=1)
    assert knows(paused, "beside-two")
    cluster.heal()
    wait_until(lambda: knows(alone, "beside-two"))

    cluster.cut_from_store(alone)
    paused.pause()
    with pytest.raises(RuntimeError) as refused:
        cluster.create_topic("beside-none")
    assert str(refused.value) == (
        "no broker can create the topic beside-none: "
        "broker 1 is down, broker 2 is paused, broker 3 cannot reach the store"
    )
    paused.resume()
    cluster.heal()
    cluster.start()


def test_a_cut_needs_brokers_of_the_cluster(cluster: LocalCluster) -> None:
    with ottla.testing.cluster(brokers=1) as other:
        for wrong in (1, "1", other.brokers[0]):
            with pytest.raises(ValueError, match=r"is no broker of this cluster: pass cluster.brokers\[0\]"):
                cluster.cut(cluster.brokers[0], wrong)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="is no broker of this cluster"):
                cluster.cut_from_store(wrong)  # type: ignore[arg-type]


def test_nothing_starts_after_the_end_of_the_block() -> None:
    with ottla.testing.cluster(brokers=1) as cluster:
        pass
    with pytest.raises(RuntimeError, match="the cluster is closed"):
        cluster.start()
    with pytest.raises(RuntimeError, match="the broker is closed"):
        cluster.brokers[0].restart()
    cluster.close()  # a second time: nothing is left to do


def test_a_broker_does_not_start_after_the_end_of_the_block() -> None:
    with ottla.testing.broker() as broker:
        pass
    with pytest.raises(RuntimeError, match="the broker is closed, and its directory removed"):
        broker.restart()


@pytest.mark.parametrize("brokers", [0, -1, 2.5, "3"])
def test_a_cluster_has_a_whole_number_of_brokers(brokers: object) -> None:
    with pytest.raises(ValueError, match="is not a whole number of at least 1"), ottla.testing.cluster(brokers):  # type: ignore[arg-type]
        pass
