"""Transactional ids: which there are, what they do, and an end for those that hang."""

from typing import NamedTuple

from ottla.client.client import Client, error_code
from ottla.client.connection import NotAuthenticated, Unreachable
from ottla.client.transaction_states import TransactionState, abort_transactions, transaction_states
from ottla.console.connections import ask_node
from ottla.console.facts.metadata import Snapshot
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_transactions import ListTransactionsRequest

__all__ = ["ListedTransaction", "abort_transactions", "describe_transactions", "list_transactions"]

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
        return transaction_states(client, names)
    except KafkaError:  # one that may not be described hides the others; the list is still there
        return {}
