"""What tests of groups and transactions in a cluster share: finding coordinators, reading what is committed."""

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.client.client import LATEST, READ_COMMITTED, READ_UNCOMMITTED, Client
from ottla.client.fetching import fetch
from ottla.records import batch
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until
from ottla.topic_partition import TopicPartition


@contextmanager
def open_client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of our own, which waits as long as it takes."""
    client = Client({**cluster.client_settings, "retry.backoff.ms": "10", "default.api.timeout.ms": "300000"})
    try:
        yield client
    finally:
        client.close()


def find_coordinator(cluster: LocalCluster, kind: str, key: str) -> ClusterBroker:
    """The broker that coordinates a "group" or a "transaction" now."""
    with open_client(cluster) as client:
        node = client.retry(lambda: client.find_coordinator(kind, key))
    return cluster.brokers[node - 1]


def find_leader(cluster: LocalCluster, topic: str, partition: int) -> ClusterBroker:
    with open_client(cluster) as client:
        leader = client.retry(lambda: client.find_leader(topic, partition))
    return cluster.brokers[leader.node - 1]


def choose_name(cluster: LocalCluster, kind: str, coordinator: ClusterBroker) -> str:
    """A group or transactional id that this broker coordinates."""
    with open_client(cluster) as client:
        for number in range(1000):
            name = f"{kind}-{number}"
            if client.retry(lambda name=name: client.find_coordinator(kind, name)) == coordinator.id:  # type: ignore[misc]
                return name
    raise AssertionError(f"broker {coordinator.id} coordinates nothing")


def wait_until_in_sync(cluster: LocalCluster, *topics: str) -> None:
    """Wait until every replica of these topics is in sync and on a broker that serves it."""

    def is_in_sync() -> bool:
        images = [broker.inspect(lambda each: each.node.image) for broker in cluster.brokers if broker.running]
        found = [image.topic(topic) for image in images for topic in topics]
        return all(
            topic is not None and all(len(state.isr) == len(state.replicas) for state in topic.partitions)
            for topic in found
        )

    wait_until(is_in_sync)


def read_committed(client: Client, topic: str, partitions: int) -> list[list[bytes]]:
    """The values of every partition that a read_committed consumer gets, once no transaction is open."""
    found = []
    for partition in range(partitions):
        where = TopicPartition(topic, partition)

        def read_end(isolation: int, where: TopicPartition = where) -> int:
            return client.list_offsets({where: LATEST}, isolation)[where].offset

        wait_until(lambda read_end=read_end: read_end(READ_COMMITTED) == read_end(READ_UNCOMMITTED))  # type: ignore[misc]
        values: list[bytes] = []
        for data in fetch(client, topic, partition, 0, read_end(READ_COMMITTED), isolation=READ_COMMITTED):
            for position, _ in batch.headers(data):
                values += [record.value or b"" for record in batch.decode(data, position)]
        found.append(values)
    return found
