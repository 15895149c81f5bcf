"""Checks transactions: each is there as a whole or not at all, as its producer was told.

- LOST: every acknowledged record of a transaction that was committed is shown to consumers with read_committed.
- ABORTED_READ: no record of a transaction that was aborted is ever shown to them.
- IN_PART: of a transaction whose outcome its producer never learned, all acknowledged records are shown, or none.
- DIRTY_READ: what a poll with read_committed returned belongs to a transaction that was committed.
"""

from collections import defaultdict
from collections.abc import Iterator

from ottla.topic_partition import TopicPartition
from tests.simulation.history import (
    Acknowledged,
    Batch,
    History,
    Outcome,
    Polled,
    Sent,
    TransactionEnded,
)

Problem = tuple[str, TopicPartition, str]


def find_transaction_problems(history: History) -> Iterator[Problem]:
    """Find broken promises about transactions: promise, partition and message of each."""
    batches: dict[str, list[Batch]] = defaultdict(list)
    owners: dict[bytes, str] = {}
    for event in history.events:
        if isinstance(event, Sent) and event.batch.transaction is not None:
            batches[event.batch.transaction].append(event.batch)
            owners.update(dict.fromkeys(event.batch.values, event.batch.transaction))
    if not batches:
        return
    outcomes = {event.transaction: event.outcome for event in history.events if isinstance(event, TransactionEnded)}
    acknowledged = {event.batch for event in history.events if isinstance(event, Acknowledged)}
    shown = {value for log in history.committed.values() for _, value in log}
    for transaction, own in batches.items():
        yield from _check_transaction(transaction, own, outcomes.get(transaction), acknowledged, shown)
    for polled in history.events:
        if isinstance(polled, Polled) and polled.read_committed:
            yield from _find_dirty_reads(polled, owners, outcomes, shown)


def _check_transaction(
    transaction: str, batches: list[Batch], outcome: Outcome | None, acknowledged: set[Batch], shown: set[bytes]
) -> Iterator[Problem]:
    present = [batch for batch in batches if any(value in shown for value in batch.values)]
    missing = [
        batch for batch in batches if batch in acknowledged and not all(value in shown for value in batch.values)
    ]
    if outcome is Outcome.ABORTED:
        for batch in present:
            yield "ABORTED_READ", batch.partition, f"{transaction} was aborted, and {batch} is shown as committed"
    elif outcome is Outcome.COMMITTED:
        for batch in missing:
            yield "LOST", batch.partition, f"{transaction} was committed, and {batch} is not shown"
    elif present and missing:
        message = f"{transaction}: {present[0]} of {present[0].partition} is shown, and {missing[0]} is not"
        yield "IN_PART", missing[0].partition, message


def _find_dirty_reads(
    polled: Polled, owners: dict[bytes, str], outcomes: dict[str, Outcome], shown: set[bytes]
) -> Iterator[Problem]:
    for offset, value in polled.records:
        transaction = owners.get(value)
        if transaction is None:
            continue
        name = value.decode(errors="replace")
        if outcomes.get(transaction) is Outcome.ABORTED:
            message = f"{polled.consumer} read {name} at {offset}, and {transaction} was aborted"
            yield "ABORTED_READ", polled.partition, message
        elif value not in shown:
            message = f"{polled.consumer} read {name} at {offset} before {transaction} was committed"
            yield "DIRTY_READ", polled.partition, message
