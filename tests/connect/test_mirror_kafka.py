"""Mirrors between Ottla and Apache Kafka, and what Kafka's own client of mirrors reads of them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla.testing
from benchmarks.peers.apache_kafka import (
    SHORT_LIVED_JVM,
    ApacheKafka,
    Unavailable,
    find_executable,
    find_jars,
    find_mirror_jars,
)
from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from ottla.connect.connectors.mirror import clusters
from ottla.connect.connectors.mirror.mirror_checkpoint import MirrorCheckpoint
from ottla.connect.connectors.mirror.mirror_heartbeat import MirrorHeartbeat
from ottla.connect.connectors.mirror.mirror_source import MirrorSource
from ottla.connect.running.topics import TopicGroup, create_topic
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.connect.mirrors import (
    A_DAY_MS,
    AUTHORIZER,
    BACK,
    FORTH,
    Clusters,
    check_acls,
    make_rows,
    read,
    rest_of,
    send_in_transaction,
)
from tests.connect.runs import count_records, wait_until
from tests.kafka_peer import BROKER_OPTIONS
from tests.needs import skip_without
from tests.patience import PATIENCE_S
from tests.spark.topics import Broker, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

READER = Path(__file__).with_name("MirrorReader.java")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory, kafka_tools: None) -> str:
    """The class path of `MirrorReader`."""
    try:
        libraries = f"{find_jars()}/*:{find_mirror_jars()}/*"
    except Unavailable as reason:
        skip_without("MirrorMaker 2", str(reason))
    directory = tmp_path_factory.mktemp("mirror-reader")
    compiler = find_executable("javac")
    subprocess.run([compiler, "-cp", libraries, "-d", str(directory), str(READER)], check=True, timeout=PATIENCE_S)
    return f"{libraries}:{directory}"


@pytest.fixture
def ours() -> Iterator[LocalBroker]:
    with ottla.testing.broker(log_initial_task_delay_ms=A_DAY_MS) as running:
        yield running


@pytest.fixture
def pair(spark: "SparkSession", ours: LocalBroker, apache_kafka: ApacheKafka) -> Iterator[Clusters]:
    """A is Ottla, B is Apache Kafka."""
    made = Clusters(spark, ours, apache_kafka)
    try:
        yield made
    finally:
        made.stop()


def ask_kafka(classes: str, broker: Broker, source: str, group: str, policy: str = "Default") -> dict[str, list[str]]:
    """What MirrorClient and RemoteClusterUtils say about what comes from `source`, by the first words of their lines;
    an offset by its topic partition."""
    command = [find_executable("java"), *SHORT_LIVED_JVM, "-cp", classes, READER.stem]
    arguments = [broker.bootstrap, source, group, f"{policy}ReplicationPolicy"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {(words[1] if words[0] == "offset" else words[0]): words[1:] for words in lines}


def find_topics(broker: Broker, part: str) -> set[str]:
    client = Client({"bootstrap.servers": broker.bootstrap})
    try:
        return {name for name in client.count_partitions(pattern=".*") if part in name}
    finally:
        client.close()


def test_both_directions(pair: Clusters, ours: LocalBroker, apache_kafka: ApacheKafka, classes: str) -> None:
    """Topics with settings and partitions, records with times and headers, groups by exact offsets there and back,
    heartbeats, and no record that returns."""
    a, b = (Client({"bootstrap.servers": each.bootstrap}) for each in (ours, apache_kafka))
    create_topic(a, "m.orders", TopicGroup(partitions=3, replication_factor=1, settings={"retention.ms": "86400000"}))
    create_topic(a, "m.jobs", TopicGroup(partitions=1, replication_factor=1))
    create_topic(
        b, "m.refunds", TopicGroup(partitions=2, replication_factor=1, settings={"max.message.bytes": "2000000"})
    )
    send(ours, "m.orders", make_rows(0, 100))
    send(apache_kafka, "m.refunds", make_rows(0, 60, partitions=2))
    for first in range(0, 40, 10):
        send_in_transaction(ours, "m.jobs", first, 10)
    here, there = TopicPartition("m.jobs", 0), TopicPartition("A.m.jobs", 0)
    commit_offsets(a, "workers", {here: CommittedOffset(26, "note")})  # 24 records and two markers
    commit_offsets(b, "payers", {TopicPartition("m.refunds", 1): CommittedOffset(11)})

    for flow in (FORTH, BACK):
        wanted = r"m\..*, A\.m\..*, B\.m\..*"
        connectors = MirrorSource, MirrorCheckpoint, MirrorHeartbeat
        pair.mirror(flow, *connectors, topics=wanted, groups="workers, payers", offset_lag_max="0", tasks_max="2")
    wait_until(lambda: count_records(apache_kafka, "A.m.orders") == 100, pair.describe)
    wait_until(lambda: count_records(ours, "B.m.refunds") == 60, pair.describe)
    assert read(apache_kafka, "A.m.orders") == read(ours, "m.orders")
    assert read(ours, "B.m.refunds") == read(apache_kafka, "m.refunds")
    for client, topic, name, value in (
        (b, "A.m.orders", "retention.ms", "86400000"),
        (a, "B.m.refunds", "max.message.bytes", "2000000"),
    ):
        found = clusters.describe_settings(client, [topic])[topic]
        assert next(each.value for each in found if each.name == name) == value

    wait_until(lambda: there in fetch_offsets(b, "workers"), pair.describe)
    moved = fetch_offsets(b, "workers")[there].offset
    assert rest_of(apache_kafka, "A.m.jobs", moved) == [f"job {n}" for n in range(24, 40)]
    commit_offsets(b, "workers", {there: CommittedOffset(moved + 7)})
    wait_until(lambda: fetch_offsets(a, "workers")[here].offset > 26, pair.describe)
    returned = fetch_offsets(a, "workers")[here].offset
    assert rest_of(ours, "m.jobs", returned) == [f"job {n}" for n in range(31, 40)]
    paid = TopicPartition("B.m.refunds", 1)
    wait_until(lambda: paid in fetch_offsets(a, "payers"), pair.describe)

    wait_until(lambda: count_records(apache_kafka, "A.heartbeats") > 0, pair.describe)
    wait_until(lambda: count_records(ours, "B.heartbeats") > 0, pair.describe)
    said = ask_kafka(classes, apache_kafka, "A", "workers")
    assert said["checkpoints"] == ["A.checkpoints.internal"]
    assert "A" in said["upstream"]
    assert {"heartbeats", "A.heartbeats"} <= set(said["heartbeats"])
    assert set(said["remote"]) >= {"A.m.orders", "A.m.jobs", "A.heartbeats"}
    assert said["hops"] == ["1"]
    assert said["A.m.jobs-0"][1:2] == [str(fetch_offsets(b, "workers")[there].offset)]
    said = ask_kafka(classes, ours, "B", "payers")
    assert said["B.m.refunds-1"][1:2] == [str(fetch_offsets(a, "payers")[paid].offset)] == ["11"]
    assert said["checkpoints"] == ["B.checkpoints.internal"]
    assert said["hops"] == ["1"]

    for client, topic, count in ((a, "m.orders", 4), (b, "m.refunds", 3)):
        clusters.add_partitions(client, topic, count)
    wait_until(lambda: b.count_partitions(["A.m.orders"])["A.m.orders"] == 4, pair.describe)
    wait_until(lambda: a.count_partitions(["B.m.refunds"])["B.m.refunds"] == 3, pair.describe)
    send(ours, "m.orders", make_rows(100, 40, partitions=4))
    send(apache_kafka, "m.refunds", make_rows(60, 30, partitions=3))
    wait_until(lambda: count_records(apache_kafka, "A.m.orders") == 140, pair.describe)
    wait_until(lambda: count_records(ours, "B.m.refunds") == 90, pair.describe)
    assert read(apache_kafka, "A.m.orders") == read(ours, "m.orders")
    assert read(ours, "B.m.refunds") == read(apache_kafka, "m.refunds")

    assert find_topics(ours, "m.") == {"m.orders", "m.jobs", "B.m.refunds"}
    assert find_topics(apache_kafka, ".m.") == {"A.m.orders", "A.m.jobs"}
    for client in (a, b):
        client.close()


def test_the_same_names(pair: Clusters, ours: LocalBroker, apache_kafka: ApacheKafka, classes: str) -> None:
    """IdentityReplicationPolicy: topics keep their names, and a group goes on under the same ones."""
    a, b = (Client({"bootstrap.servers": each.bootstrap}) for each in (ours, apache_kafka))
    create_topic(a, "same", TopicGroup(partitions=1, replication_factor=1))
    send(ours, "same", [{"value": f"{n}", "partition": 0} for n in range(30)])
    where = TopicPartition("same", 0)
    commit_offsets(a, "movers", {where: CommittedOffset(12)})
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    more = {"topics": "same", "groups": "movers", "replication_policy_class": policy}
    pair.mirror(FORTH, MirrorSource, MirrorCheckpoint, **more)
    wait_until(lambda: where in fetch_offsets(b, "movers"), pair.describe)
    assert rest_of(apache_kafka, "same", fetch_offsets(b, "movers")[where].offset) == [f"{n}" for n in range(12, 30)]
    said = ask_kafka(classes, apache_kafka, "A", "movers", "Identity")
    assert said["same-0"][1:2] == [str(fetch_offsets(b, "movers")[where].offset)]
    assert find_topics(apache_kafka, "same") == {"same"}
    for client in (a, b):
        client.close()


def test_acls_are_mirrored(spark: "SparkSession", kafka_tools: None) -> None:
    """Of Apache Kafka, which is both the source and the target."""
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with ApacheKafka(settings=settings, options=BROKER_OPTIONS) as kafka:
        pair = Clusters(spark, kafka, kafka)
        try:
            check_acls(pair, kafka, kafka)
        finally:
            pair.stop()
