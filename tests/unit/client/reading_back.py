"""What a consumer finds in a topic: the naive way, record by record."""

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Cluster, TopicPartition
from ottla.client.fetching import fetch
from ottla.client.transaction_states import transaction_names, transaction_states
from ottla.records import batch

PATIENCE_S = 60.0


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


def await_markers(cluster: Cluster) -> None:
    """A transaction that is committed shows in one partition after the other: wait for those that are about to end."""
    patience = cluster.patience(PATIENCE_S)
    while _some_are_ending(cluster):
        assert patience.pause(), "a transaction does not end"


def _some_are_ending(cluster: Cluster) -> bool:
    states = transaction_states(cluster, transaction_names(cluster, ""))
    return any(state.state.startswith("Prepare") for state in states.values())
