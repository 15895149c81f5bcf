"""Creation of partitions with three replicas, and their failover after kill -9.

A partition is created when every broker lists it with a leader and all of its replicas in sync, and the leader tells
its end. Topics have at most a thousand partitions, because Apache Kafka creates no more than about ten thousand in one
request.
"""

import time

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cluster.leaders import MetadataPoll, await_ends, await_in_sync, find_busiest_leader, has_other_leaders
from benchmarks.cluster.size import Size
from benchmarks.loads.replicated import REPLICAS
from benchmarks.peers.cluster_processes import ClusterProcesses
from benchmarks.report import Row

SETTINGS: dict[str, str] = {}
LARGEST_TOPIC = 1000
REQUEST_SECONDS = 300.0
POLL_SECONDS = 0.05


def measure(cluster: ClusterProcesses, size: Size) -> dict[Row, float]:
    create(cluster, "warm-up", 10)
    few, seconds = create(cluster, "few", size.few_partitions)
    rest, _ = create(cluster, "rest", size.failover_partitions - size.few_partitions)
    failover = f"no leader of any of {size.failover_partitions:,} partitions after kill -9"
    return {
        name_creation(size.few_partitions): seconds,
        Row(failover, "s", more_is_better=False): fail_over(cluster, [*few, *rest], size.failover_partitions),
    }


def name_creation(count: int) -> Row:
    return Row(f"creation of {count:,} partitions", "s", more_is_better=False)


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
    await_in_sync(cluster, list(topics), count, POLL_SECONDS)
    return list(topics), await_ends(cluster, list(topics)) - began


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
