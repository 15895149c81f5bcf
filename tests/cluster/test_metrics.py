"""What the metrics say about replication while a cluster loses a broker and gets it back."""

import time
from contextlib import closing
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer, TopicPartition

import ottla.testing
from ottla.cli.cluster.overview import PartitionState, observe
from ottla.client.client import Client
from ottla.console.facts.metadata import read_snapshot
from ottla.testing.local_cluster import ClusterBroker, LocalCluster, wait_until
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.exposition import Exposition
from tests.patience import PATIENCE_S

REPLICAS = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
FAST = 1 << 40
"""Bytes per second of a throttle for which nothing has to wait."""


def metrics(broker: ClusterBroker) -> Exposition:
    with urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics", timeout=PATIENCE_S) as answer:
        return Exposition(answer.read().decode())


def read(broker: ClusterBroker, name: str) -> float:
    """The value of a metric without labels."""
    return metrics(broker).value(name)


def add(brokers: list[ClusterBroker], name: str) -> float:
    return sum(read(broker, name) for broker in brokers)


def count_throttled(brokers: list[ClusterBroker], throttle: str) -> float:
    name = "ottla_replication_throttled_bytes_total"
    return sum(metrics(broker).value(name, throttle=throttle) for broker in brokers)


def count_elections(brokers: list[ClusterBroker]) -> float:
    """How often these brokers have elected leaders, from the histogram of the time it took."""
    return add(brokers, "kafka_controller_controllerstats_leaderelectionrateandtimems_count")


def check_lag(cluster: LocalCluster) -> None:
    """The coordinator of a group reports its lag in every partition, also where it has no replica itself."""
    cluster.create_topic("scattered", partitions=3, replication_factor=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    minute_ago_ms = int((time.time() - 60) * 1000)
    for partition in range(3):
        producer.produce("scattered", b"x", partition=partition, timestamp=minute_ago_ms)
        producer.produce("scattered", b"y", partition=partition, timestamp=minute_ago_ms)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    try:
        consumer.commit(offsets=[TopicPartition("scattered", each, 1) for each in range(3)], asynchronous=False)
    finally:
        consumer.close()

    def find_lags(name: str) -> list[tuple[str, float]]:
        found = [family for each in cluster.brokers if (family := metrics(each).families.get(name)) is not None]
        samples = [sample for family in found for sample in family.samples.items()]
        return sorted((dict(labels)["partition"], lag) for (_, labels), lag in samples)

    wait_until(lambda: find_lags("kafka_consumergroup_lag") == [("0", 1), ("1", 1), ("2", 1)])
    ages = find_lags("ottla_consumergroup_lag_seconds")
    assert [partition for partition, _ in ages] == ["0", "1", "2"]
    assert all(age >= 60 for _, age in ages)


def check_adding(cluster: LocalCluster, away: ClusterBroker) -> None:
    """A partition does not miss a replica that a reassignment adds, in metrics, command line and console."""
    cluster.create_topic("moving", partitions=1, replication_factor=1)
    with closing(Client(cluster.client_settings)) as client:

        def find() -> PartitionState:
            return next(each for each in observe(client).partitions if each.where.topic == "moving")

        leader = next(each for each in cluster.brokers if each.id == find().leader)
        before = read(leader, f"{REPLICAS}_underreplicatedpartitions")
        moving = ReassignablePartition(partition_index=0, replicas=[leader.id, away.id])
        topic = ReassignableTopic(name="moving", partitions=[moving])
        answer = client.ask_any(AlterPartitionReassignmentsRequest(topics=[topic]))
        assert not answer.error_code and not answer.responses[0].partitions[0].error_code, answer
        wait_until(lambda: read(leader, f"{REPLICAS}_reassigningpartitions") == 1)
        assert read(leader, f"{REPLICAS}_underreplicatedpartitions") == before
        assert (find().in_sync, find().adding) == ((leader.id,), (away.id,))
        assert not find().is_under_replicated
        assert not read_snapshot(client).topic("moving").under_replicated


def test_trouble_and_its_end_are_in_the_metrics() -> None:
    with ottla.testing.cluster(
        brokers=3, metrics_port=0, leader_replication_throttled_rate=FAST, follower_replication_throttled_rate=FAST
    ) as cluster:
        replicas = {"leader_replication_throttled_replicas": "*", "follower_replication_throttled_replicas": "*"}
        cluster.create_topic("orders", 3, 3, min_insync_replicas=2, **replicas)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(300):
            producer.produce("orders", str(number).encode())
        assert producer.flush(PATIENCE_S) == 0
        lost, *others = cluster.brokers
        wait_until(lambda: add(cluster.brokers, f"{REPLICAS}_leadercount") == 3)
        assert add(cluster.brokers, f"{REPLICAS}_underreplicatedpartitions") == 0
        copied = "kafka_server_brokertopicmetrics_replicationbytes"
        received = add(cluster.brokers, f"{copied}in_total")
        assert add(cluster.brokers, f"{copied}out_total") >= received > 0
        assert count_throttled(cluster.brokers, "LeaderReplication") > 0
        wait_until(lambda: add(cluster.brokers, "kafka_server_replicafetchermanager_maxlag") == 0)

        lags = metrics(lost).find_label_values("kafka_server_fetcherlagmetrics_consumerlag", "topic")
        assert lags == {"orders"}, "one series for each replica that follows"

        cluster.create_topic("alone", partitions=3, replication_factor=1)  # each broker leads one
        wait_until(lambda: [read(each, f"{REPLICAS}_leadercount") for each in cluster.brokers] == [2, 2, 2])
        before, elected = add(others, "ottla_leader_elections_total"), count_elections(others)
        lost.kill()
        wait_until(lambda: add(others, f"{REPLICAS}_underreplicatedpartitions") == 3)
        assert add(others, f"{REPLICAS}_atminisrpartitioncount") == 5
        assert add(others, f"{REPLICAS}_underminisrpartitioncount") == 0
        assert add(others, f"{REPLICAS}_leadercount") == 5
        assert add(others, f"{CONTROLLER}_offlinepartitionscount") == 1
        assert add(others, f"{CONTROLLER}_preferredreplicaimbalancecount") == 2, "the lost broker was to lead two"
        assert add(others, "ottla_leader_elections_total") > before, "others lead what the lost broker led"
        assert add(others, "kafka_controller_controllerstats_uncleanleaderelections_total") == 0
        assert count_elections(others) > elected, "one of them has decided about it, and knows how long it took"

        check_adding(cluster, lost)
        producer.produce("orders", b"missed", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        lost.restart()
        wait_until(lambda: add(cluster.brokers, f"{REPLICAS}_underreplicatedpartitions") == 0)
        assert add(others, f"{REPLICAS}_isrexpands_total") >= 3
        assert add(cluster.brokers, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
        assert count_throttled(cluster.brokers, "FollowerReplication") > 0, "only while it was not in sync"

        assert add(cluster.brokers, "ottla_zookeeper_connected") == 3
        cluster.stop_store()
        wait_until(lambda: add(cluster.brokers, "ottla_zookeeper_connected") == 0)
        assert add(cluster.brokers, "kafka_server_sessionexpirelistener_zookeeperdisconnects_total") == 3
        cluster.heal()
        wait_until(lambda: add(cluster.brokers, "ottla_zookeeper_connected") == 3)
        check_lag(cluster)
