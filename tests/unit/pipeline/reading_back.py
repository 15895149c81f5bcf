"""What a consumer finds in a topic: the naive way, record by record."""

from ottla import batch
from ottla.pipeline.cluster import EARLIEST, LATEST, READ_COMMITTED, Cluster, TopicPartition
from ottla.pipeline.fetching import fetch


def records(cluster: Cluster, topic: str, partition: int, isolation: int = READ_COMMITTED) -> list[batch.Record]:
    where = TopicPartition(topic, partition)
    start = cluster.offsets({where: EARLIEST})[where].offset
    end = cluster.offsets({where: LATEST}, isolation)[where].offset
    found: list[batch.Record] = []
    for view in fetch(cluster, topic, partition, start, end, isolation=isolation):
        for position, _ in batch.headers(view):
            found += batch.decode(view, position)
    return found


def values(cluster: Cluster, topic: str, isolation: int = READ_COMMITTED) -> dict[int, list[bytes | None]]:
    """By partition, without those that have none."""
    (count,) = cluster.topics([topic]).values()
    found = {number: [each.value for each in records(cluster, topic, number, isolation)] for number in range(count)}
    return {number: each for number, each in found.items() if each}
