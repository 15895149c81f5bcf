"""Clients of a cluster while its brokers are killed, stopped and started: nothing acknowledged is lost."""

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

import ottla.testing
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until
from tests.patience import PATIENCE_MS, PATIENCE_S

TOPIC = "orders"

_groups = itertools.count(1)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3, min_insync_replicas=2) as local:
        local.create_topic(TOPIC, partitions=3)
        yield local


class Writer:
    """A producer with acks=all that remembers which values were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: list[KafkaError] = []
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": PATIENCE_MS,
            }
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % self._sent  # as a key it spreads the records over all partitions, so every leader gets some
            self._producer.produce(TOPIC, value, key=value, on_delivery=self._delivered)
            self._sent += 1
            self._producer.poll(0)

    def settle(self) -> None:
        """Waits until everything that was sent is acknowledged."""
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self.errors

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(message.value() or b"")


def read_all(cluster: LocalCluster, count: int) -> list[bytes]:
    """What a new consumer group reads from the beginning, until it has `count` records."""
    group = f"group-{next(_groups)}"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    values: list[bytes] = []
    try:
        consumer.subscribe([TOPIC])
        wait_until(lambda: _poll(consumer, values) >= count)
    finally:
        consumer.close()
    return values


def _poll(consumer: Consumer, values: list[bytes]) -> int:
    values += [message.value() or b"" for message in consumer.consume(10_000, 0.1) if message.error() is None]
    return len(values)


def leader_of(cluster: LocalCluster, partition: int) -> ClusterBroker:
    running = next(broker for broker in cluster.brokers if broker.running)
    image = running.inspect(lambda broker: broker.node.image)
    state = image.partition(TOPIC, partition)
    assert state is not None
    return cluster.brokers[state.leader - 1]


def is_complete(cluster: LocalCluster) -> bool:
    """Whether every replica of the topic is in sync."""
    image = cluster.brokers[0].inspect(lambda broker: broker.node.image)
    return all(len(state.isr) == 3 for state in image.topics_by_name[TOPIC].partitions)


def test_a_killed_leader_loses_nothing(cluster: LocalCluster) -> None:
    writer = Writer(cluster.bootstrap)
    writer.send(1000)
    writer.settle()
    for partition in range(3):
        killed = leader_of(cluster, partition)
        writer.send(1000)
        killed.kill()
        writer.send(1000)
        writer.settle()
        killed.restart()
        wait_until(lambda: is_complete(cluster))
    values = read_all(cluster, len(writer.acknowledged))
    assert sorted(values) == sorted(writer.acknowledged), "each record once"


def test_a_rolling_restart_is_not_noticed(cluster: LocalCluster) -> None:
    writer = Writer(cluster.bootstrap)
    for broker in cluster.brokers:
        writer.send(500)
        broker.stop()
        writer.send(500)
        writer.settle()
        broker.restart()
        wait_until(lambda: is_complete(cluster))
    values = read_all(cluster, len(writer.acknowledged))
    assert sorted(values) == sorted(writer.acknowledged)


def test_a_paused_leader_is_replaced_and_comes_back(cluster: LocalCluster) -> None:
    writer = Writer(cluster.bootstrap)
    writer.send(500)
    writer.settle()
    paused = leader_of(cluster, 0)
    others = [broker for broker in cluster.brokers if broker is not paused]
    paused.pause()
    cluster.store.expire(paused.store_name)  # the session time-out, without waiting for it
    wait_until(lambda: others[0].inspect(lambda broker: not broker.node.image.serves(paused.id)))
    writer.send(500)
    paused.resume()
    writer.settle()
    wait_until(lambda: is_complete(cluster))
    values = read_all(cluster, len(writer.acknowledged))
    assert sorted(values) == sorted(writer.acknowledged)
