"""Reads a topic record by record, in the simplest way, for comparison."""

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Client
from ottla.client.fetching import fetch
from ottla.client.transaction_states import find_transaction_states, list_transactional_ids
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S


def records(client: Client, topic: str, partition: int, isolation: int = READ_COMMITTED) -> list[batch.Record]:
    where = TopicPartition(topic, partition)
    start = client.list_offsets({where: EARLIEST})[where].offset
    end = client.list_offsets({where: LATEST}, isolation)[where].offset
    found: list[batch.Record] = []
    for view in fetch(client, topic, partition, start, end, isolation=isolation):
        for position, _ in batch.headers(view):
            found += batch.decode(view, position)
    return found


def values(client: Client, topic: str, isolation: int = READ_COMMITTED) -> dict[int, list[bytes | None]]:
    """The values of each partition, without nulls."""
    (count,) = client.count_partitions([topic]).values()
    found = {number: [each.value for each in records(client, topic, number, isolation)] for number in range(count)}
    return {number: each for number, each in found.items() if each}


def await_markers(client: Client) -> None:
    """Wait for transactions that are about to end: a committed one becomes visible in one partition after the other."""
    backoff = client.start_backoff(PATIENCE_S)
    while _some_are_ending(client):
        assert backoff.pause(), "a transaction does not end"


def _some_are_ending(client: Client) -> bool:
    states = find_transaction_states(client, list_transactional_ids(client, ""))
    return any(state.state.startswith("Prepare") for state in states.values())
