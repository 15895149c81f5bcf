"""Transactions as their coordinators see them: list, describe, abort.

A client that dies leaves its transaction open, and readers of committed records wait until it times out. Anybody who
knows its transactional id can abort it at once: a new producer with that id fences the old one.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.client import RETRIABLE, Client, error_code
from ottla.client.connection import Unreachable
from ottla.client.groups import raise_for_errors
from ottla.client.transactions import raise_epoch
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest

OPEN = "Ongoing"


class TransactionState(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    """Kafka's name: Empty, Ongoing, PrepareCommit, CompleteAbort, ..."""
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        return self.state == OPEN


def list_transactional_ids(client: Client, prefix: str, *, only_open: bool = False) -> list[str]:
    """Every transactional id that begins with `prefix` and that the principal may see."""
    answers = client.ask_each(ListTransactionsRequest(state_filters=[OPEN] if only_open else []))
    found = []
    for answer in answers.values():
        raise_for_errors(answer, "cannot list transactions")
        found += [each.transactional_id for each in answer.transaction_states]
    return sorted(name for name in found if name.startswith(prefix))


def find_transaction_states(client: Client, names: Iterable[str]) -> dict[str, TransactionState]:
    """The states of these transactional ids. An id that its coordinator does not know is left out."""
    wanted = list(dict.fromkeys(names))
    return client.retry(lambda: _describe(client, wanted))


def _describe(client: Client, names: list[str]) -> dict[str, TransactionState]:
    by_coordinator: dict[int, list[str]] = {}
    for name in names:
        by_coordinator.setdefault(client.find_coordinator("transaction", name), []).append(name)
    found: dict[str, TransactionState] = {}
    for node, asked in by_coordinator.items():
        try:
            answer = client.connect(node).ask(DescribeTransactionsRequest(transactional_ids=asked))
        except Unreachable:
            client.disconnect(node)
            for name in asked:
                client.forget_coordinator("transaction", name)
            raise
        for each in answer.transaction_states:
            code = error_code(each.error_code)
            if code in RETRIABLE:
                client.forget_coordinator("transaction", each.transactional_id)
            if code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                raise KafkaError(code, f"transactional id {each.transactional_id!r}")
            if not code:
                partitions = [TopicPartition(topic.topic, part) for topic in each.topics for part in topic.partitions]
                found[each.transactional_id] = TransactionState(
                    each.transactional_id,
                    each.producer_id,
                    each.producer_epoch,
                    each.transaction_state,
                    each.transaction_timeout_ms,
                    each.transaction_start_time_ms,
                    tuple(partitions),
                )
    return found


def abort_transactions(client: Client, names: Iterable[str]) -> None:
    """Abort the open transactions of these transactional ids. Producers that still use them are fenced."""
    for name in names:
        raise_epoch(client, name)
