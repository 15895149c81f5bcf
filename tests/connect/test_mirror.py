"""Topics and groups of one broker, mirrored to another: records, settings, groups that fail over and return."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import ottla.testing
from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from ottla.connect.connectors.mirror import clusters
from ottla.connect.connectors.mirror.mirror_checkpoint import MirrorCheckpoint
from ottla.connect.connectors.mirror.mirror_heartbeat import MirrorHeartbeat
from ottla.connect.connectors.mirror.mirror_source import MirrorSource
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.connect.mirrors import (
    A_DAY_MS,
    BACK,
    FORTH,
    Clusters,
    make_rows,
    read,
    rest_of,
    send_in_transaction,
)
from tests.connect.runs import count_records, wait_until
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
