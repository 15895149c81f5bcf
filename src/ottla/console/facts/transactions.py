"""Transactional ids: which there are, what they do, and an end for those that hang."""

from typing import NamedTuple

from ottla.client.client import Client, error_code
from ottla.client.connection import NotAuthenticated, Unreachable
from ottla.client.hanging_transactions import (
    OpenTransaction,
    find_hanging,
    list_open_transactions,
    write_abort_marker,
)
from ottla.client.transaction_states import TransactionState, abort_transactions, find_transaction_states
from ottla.console.connections import ask_node
from ottla.console.facts.metadata import Snapshot
from ottla.console.facts.settings import raise_for_code
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_transactions import ListTransactionsRequest

__all__ = [
    "ListedTransaction",
    "OpenTransaction",
    "abort_transactions",
    "describe_transactions",
    "end_hanging",
    "list_hanging",
    "list_transactions",
]

_DENIED = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


def list_transactions(client: Client, snapshot: Snapshot) -> list[ListedTransaction]:
    """Every transactional id that the principal may see, open ones first. Brokers that do not answer are left out."""
    found: list[ListedTransaction] = []
    for broker in snapshot.brokers:
        if broker.is_fenced:
            continue
        try:
            answer = ask_node(client, broker.node_id, ListTransactionsRequest())
        except NotAuthenticated:
            raise
        except Unreachable:
            continue
        code = error_code(answer.error_code)
        if code in _DENIED:
            raise KafkaError(code, "the principal may not list transactions")
        found += [
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, broker.node_id)
            for each in answer.transaction_states
        ]
    return sorted(found, key=lambda each: (each.state != "Ongoing", each.transactional_id))


def describe_transactions(client: Client, names: list[str]) -> dict[str, TransactionState]:
    try:
        return find_transaction_states(client, names)
    except KafkaError:  # one that may not be described hides the others; the list is still there
        return {}


def list_hanging(client: Client, snapshot: Snapshot, topic: str | None, before_ms: int) -> list[OpenTransaction]:
    """Those in a topic, or in all: open, silent since `before_ms`, and unknown to every coordinator."""
    return find_hanging(client, _find_leaders(snapshot, topic), before_ms)


def end_hanging(client: Client, snapshot: Snapshot, topic: str, partition: int, start_offset: int) -> bool:
    """Write the marker that aborts the transaction which began there. False if none is open there."""
    led = {
        leader: {topic: [partition]}
        for leader, topics in _find_leaders(snapshot, topic).items()
        if partition in topics[topic]
    }
    for found in list_open_transactions(client, led):
        if found.start_offset == start_offset:
            raise_for_code(write_abort_marker(client, found), None, f"{topic}-{partition}")
            return True
    return False


def _find_leaders(snapshot: Snapshot, topic: str | None) -> dict[int, dict[str, list[int]]]:
    led: dict[int, dict[str, list[int]]] = {}
    for state in snapshot.topics.values() if topic is None else [snapshot.topic(topic)]:
        for part in state.partitions:
            if part.leader >= 0:
                led.setdefault(part.leader, {}).setdefault(state.name, []).append(part.number)
    return led
