"""Topics and groups of one broker, mirrored to another: records, settings, groups that fail over and return."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from ottla.connect.connector import Connector
from ottla.connect.connectors.mirror import clusters
from ottla.connect.connectors.mirror.mirror_checkpoint import MirrorCheckpoint
from ottla.connect.connectors.mirror.mirror_heartbeat import MirrorHeartbeat
from ottla.connect.connectors.mirror.mirror_source import MirrorSource
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.connect.runs import RunningConnector, count_records, read_records, wait_until
from tests.patience import PATIENCE_S
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    f"{name}.interval.seconds": "0"
    for name in (
        "refresh.topics",
        "sync.topic.configs",
        "refresh.groups",
        "emit.checkpoints",
        "sync.group.offsets",
        "emit.heartbeats",
    )
} | {
    f"{name}replication.factor": "1" for name in ("", "offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.")
}
A_DAY_MS = 86_400_000
"""So long retention does not run: the timestamps of the records are very old."""
FORTH, BACK = ("A", "B"), ("B", "A")


class Clusters:
    """Two brokers, and connectors that mirror between them."""

    def __init__(self, spark: "SparkSession", a: LocalBroker, b: LocalBroker) -> None:
        self._spark = spark
        self._brokers = {"A": a, "B": b}
        self._stack = ExitStack()

    def mirror(self, flow: tuple[str, str], *connectors: type[Connector], **config: str) -> list[RunningConnector]:
        source, target = flow
        settings = {
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            "source.cluster.bootstrap.servers": self._brokers[source].bootstrap,
            "sync.group.offsets.enabled": "true",
            **QUICK,
            **{name.replace("_", "."): text for name, text in config.items()},
        }
        started = []
        for connector in connectors:
            name = f"{source}-{target}-{connector.__name__}"
            run = RunningConnector(self._spark, self._brokers[target].bootstrap, connector, name, settings)
            run.run.start()
            self._stack.callback(run.run.join, PATIENCE_S)
            self._stack.callback(run.run.stop)
            started.append(run)
        return started

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture
def other() -> Iterator[LocalBroker]:
    with ottla.testing.broker(log_initial_task_delay_ms=A_DAY_MS) as running:
        yield running


@pytest.fixture
def source() -> Iterator[LocalBroker]:
    with ottla.testing.broker(log_initial_task_delay_ms=A_DAY_MS) as running:
        yield running


@pytest.fixture
def pair(spark: "SparkSession", source: LocalBroker, other: LocalBroker) -> Iterator[Clusters]:
    made = Clusters(spark, source, other)
    try:
        yield made
    finally:
        made.stop()


def make_rows(first: int, count: int, partitions: int = 3) -> list[dict[str, Any]]:
    return [
        {
            "key": f"k{n}" if n % 3 else None,
            "value": f"v{n}" if n % 5 else None,
            "timestamp": 1_000_000 + n,
            "partition": n % partitions,
            "headers": [("n", str(n).encode()), ("empty", None)] if n % 2 else None,
        }
        for n in range(first, first + count)
    ]


def read(broker: LocalBroker, topic: str) -> list[dict[str, Any]]:
    """Records without their offsets, in the order of each partition."""
    rows = read_records(broker, topic)
    return sorted(
        ({name: value for name, value in row.items() if name != "offset"} for row in rows),
        key=lambda row: row["partition"],
    )


def test_topics_are_mirrored(pair: Clusters, source: LocalBroker, other: LocalBroker) -> None:
    """Keys, values, times, headers, partitions; settings; partitions that are added; no topic that is not wanted."""
    source.create_topic("orders", partitions=3, retention_ms=86_400_000)
    source.create_topic("B.payments", partitions=1)
    source.create_topic("other", partitions=1)
    send(source, "orders", make_rows(0, 100))
    send(source, "other", [{"value": "x"}])
    send(source, "B.payments", [{"value": "it is there already"}])
    (run,) = pair.mirror(FORTH, MirrorSource, topics="orders, B.*", tasks_max="2")
    wait_until(lambda: count_records(other, "A.orders") == 100, lambda: run.status)
    assert read(other, "A.orders") == read(source, "orders")
    client, upstream = Client({"bootstrap.servers": other.bootstrap}), Client({"bootstrap.servers": source.bootstrap})
    topics = set(client.count_partitions(pattern=".*"))
    assert "A.orders" in topics
    assert not topics & {"A.other", "A.B.payments", "orders"}
    clusters.add_partitions(upstream, "orders", 4)
    clusters.change_settings(upstream, {"orders": {"retention.ms": "1000000"}}, clusters.NOTHING)
    wait_until(lambda: client.count_partitions(["A.orders"])["A.orders"] == 4)

    def find_retention() -> str | None:
        found = clusters.describe_settings(client, ["A.orders"])["A.orders"]
        return next(each.value for each in found if each.name == "retention.ms")

    wait_until(lambda: find_retention() == "1000000", find_retention)
    send(source, "orders", make_rows(100, 40, partitions=4))
    wait_until(lambda: count_records(other, "A.orders") == 140, lambda: run.status)
    assert read(other, "A.orders") == read(source, "orders")
    for each in (client, upstream):
        each.close()


def test_a_group_fails_over_and_returns(pair: Clusters, source: LocalBroker, other: LocalBroker) -> None:
    """Offsets are translated exactly, although transactions leave gaps in both logs, and never moved back."""
    source.create_topic("jobs", partitions=1)
    here, there = TopicPartition("jobs", 0), TopicPartition("A.jobs", 0)
    for first in range(0, 40, 10):
        send_in_transaction(source, "jobs", first, 10)
    a, b = (Client({"bootstrap.servers": each.bootstrap}) for each in (source, other))
    commit_offsets(a, "workers", {here: CommittedOffset(26, "note")})  # 24 records and two markers
    pair.mirror(FORTH, MirrorSource, MirrorCheckpoint, topics="jobs", offset_lag_max="0")
    pair.mirror(BACK, MirrorCheckpoint, topics="A.jobs")
    wait_until(lambda: fetch_offsets(b, "workers").get(there) is not None)
    assert rest_of(other, "A.jobs", fetch_offsets(b, "workers")[there].offset) == [f"job {n}" for n in range(24, 40)]
    commit_offsets(b, "workers", {there: CommittedOffset(fetch_offsets(b, "workers")[there].offset + 7)})
    wait_until(lambda: fetch_offsets(a, "workers")[here].offset > 26)
    assert rest_of(source, "jobs", fetch_offsets(a, "workers")[here].offset) == [f"job {n}" for n in range(31, 40)]
    for each in (a, b):
        each.close()


def test_active_active(pair: Clusters, source: LocalBroker, other: LocalBroker) -> None:
    """Both clusters have both sides' records, and none comes back; heartbeats are mirrored."""
    for name, broker in (("A", source), ("B", other)):
        broker.create_topic("events", partitions=1)
        send(broker, "events", [{"value": f"{name}{n}"} for n in range(5)])
    pair.mirror(FORTH, MirrorSource, MirrorHeartbeat)
    pair.mirror(BACK, MirrorSource)
    wait_until(lambda: count_records(other, "A.events") == 5 and count_records(source, "B.events") == 5)
    wait_until(lambda: count_records(source, "B.heartbeats") > 0)
    send(source, "events", [{"value": "A5"}])
    wait_until(lambda: count_records(other, "A.events") == 6)
    for broker, wanted in ((source, {"events", "B.events"}), (other, {"events", "A.events"})):
        client = Client({"bootstrap.servers": broker.bootstrap})
        assert {name for name in client.count_partitions(pattern=".*") if "events" in name} == wanted
        client.close()


def send_in_transaction(broker: LocalBroker, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for n in range(first, first + count):
        producer.produce(topic, value=f"job {n}", partition=0)
    producer.commit_transaction(PATIENCE_S)


def rest_of(broker: LocalBroker, topic: str, offset: int) -> list[str]:
    """What a consumer reads that begins at the offset."""
    return [row["value"].decode() for row in read_records(broker, topic) if row["offset"] >= offset]
