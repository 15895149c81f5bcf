"""Creation of many partitions with three replicas, the memory they take, and their failover after kill -9.

A partition is created when every broker lists it with a leader and all of its replicas in sync. Topics have at most a
thousand partitions, because Apache Kafka creates no more than about ten thousand in one request.
"""

import time

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cluster.leaders import MetadataPoll, await_in_sync, find_busiest_leader, has_other_leaders
from benchmarks.cluster.size import Size
from benchmarks.loads.replicated import REPLICAS
from benchmarks.peers.cluster_processes import ClusterProcesses
from benchmarks.report import Row

SETTINGS: dict[str, str] = {}
LARGEST_TOPIC = 1000
REQUEST_SECONDS = 300.0
POLL_SECONDS = 0.05
SETTLE_SECONDS = 2.0


def measure(cluster: ClusterProcesses, size: Size) -> dict[Row, float]:
    values: dict[Row, float] = {}
    create(cluster, "warm-up", 10)
    few, few_seconds = create(cluster, "few", size.few_partitions)
    values[Row(f"creation of {size.few_partitions:,} partitions", "s", more_is_better=False)] = few_seconds
    rest, _ = create(cluster, "rest", size.failover_partitions - size.few_partitions)
    values[
        Row(f"no leader of any of {size.failover_partitions:,} partitions after kill -9", "s", more_is_better=False)
    ] = fail_over(cluster, [*few, *rest], size.failover_partitions)
    time.sleep(SETTLE_SECONDS)
    before = cluster.usage().resident_bytes
    _, many_seconds = create(cluster, "many", size.many_partitions)
    values[Row(f"creation of {size.many_partitions:,} partitions", "s", more_is_better=False)] = many_seconds
    time.sleep(SETTLE_SECONDS)
    memory = (cluster.usage().resident_bytes - before) / size.many_partitions * 1000
    values[Row("memory of 1,000 partitions, all three brokers", "MB", more_is_better=False)] = memory / 1e6
    return values


def create(cluster: ClusterProcesses, name: str, count: int) -> tuple[list[str], float]:
    """Create so many partitions. Returns the names of their topics, and the seconds until they are complete."""
    counts = [min(LARGEST_TOPIC, count - begun) for begun in range(0, count, LARGEST_TOPIC)]
    topics = {f"{name}-{number}": partitions for number, partitions in enumerate(counts)}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": int(REQUEST_SECONDS * 1000)})
    began = time.monotonic()
    for topic, partitions in topics.items():
        created = admin.create_topics(
            [NewTopic(topic, num_partitions=partitions, replication_factor=REPLICAS)],
            operation_timeout=REQUEST_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )
        created[topic].result(REQUEST_SECONDS)
    return list(topics), await_in_sync(cluster, list(topics), count, POLL_SECONDS) - began


def fail_over(cluster: ClusterProcesses, topics: list[str], count: int) -> float:
    """Kill the broker that leads most. Returns the seconds until the others list another leader of each partition."""
    victim = find_busiest_leader(cluster, topics)
    others = [broker for broker_id, broker in cluster.brokers.items() if broker_id != victim]
    with MetadataPoll(others, topics) as poll:
        began = time.monotonic()
        cluster.brokers[victim].kill()
        ended = poll.await_all(has_other_leaders(victim, count), f"other leaders than broker {victim}", POLL_SECONDS)
    cluster.brokers[victim].start()
    await_in_sync(cluster, topics, count, POLL_SECONDS)
    return ended - began
