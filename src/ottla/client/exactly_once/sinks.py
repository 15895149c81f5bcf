"""Finds the exactly-once sinks of a cluster: their ledgers, last batches and open transactions.

A sink is known to brokers only by the names of its groups and transactional ids (`batch_ledger.py`, `task_ledger.py`):
the query's id, which is a UUID, and the topic, with a suffix for tasks, claims and parts of decisions.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, fetch_offsets, raise_for_errors
from ottla.client.transaction_states import TransactionState, find_transaction_states, list_transactional_ids
from ottla.wire.messages.list_groups import ListGroupsRequest

_NAME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(.+)")
_BEHIND = re.compile(r"-(?:(?:claim|decision)-)?\d+")
_CLAIM = re.compile(r"-claim-\d+")
_TASK = re.compile(r"-(\d+)")


class Sink(NamedTuple):
    query_id: str
    topic: str
    last_batch: int | None
    """The last batch that has landed or was decided; None without a ledger."""
    by_task: bool
    """Whether each task has a transaction of its own."""
    task_batches: dict[int, int]
    """The last batch of each task that has a ledger."""
    transactions: tuple[TransactionState, ...]

    @property
    def name(self) -> str:
        return f"{self.query_id}-{self.topic}"

    @property
    def open_transactions(self) -> list[TransactionState]:
        return [each for each in self.transactions if each.is_open]

    def task_of(self, transactional_id: str) -> int | None:
        found = _TASK.fullmatch(transactional_id.removeprefix(self.name))
        return None if found is None else int(found[1])


def find_sinks(client: Client, prefix: str = "") -> list[Sink]:
    """The sinks whose query id begins with `prefix`."""
    ledgers = _find_ledgers(client, prefix)
    names = [name for name in list_transactional_ids(client, prefix) if _NAME.fullmatch(name)]
    owners: dict[tuple[str, str], list[str]] = {sink: [] for sink in ledgers if _is_head(sink, ledgers)}
    topics = client.count_partitions(pattern=".*") if names else {}
    for name in names:
        owner = _find_owner(name, owners, topics)
        if owner is not None:
            owners.setdefault(owner, []).append(name)
    return [_find_sink(client, *owner, ledgers, owners[owner]) for owner in sorted(owners)]


Ledgers = dict[tuple[str, str], tuple[str, CommittedOffset]]
"""A topic and its committed offset, by query id and the rest of the group's name."""


def _find_ledgers(client: Client, prefix: str) -> Ledgers:
    found: Ledgers = {}
    for answer in client.ask_each(ListGroupsRequest()).values():
        raise_for_errors(answer, "cannot list groups")
        for group in answer.groups:
            name = _NAME.fullmatch(group.group_id)
            if name is None or not group.group_id.startswith(prefix):
                continue
            for where, committed in fetch_offsets(client, group.group_id).items():
                if where.partition == 0 and _begins_with(name[2], where.topic):
                    found[name[1], name[2]] = where.topic, committed
    return found


def _begins_with(rest: str, topic: str) -> bool:
    return rest == topic or (rest.startswith(topic) and _BEHIND.fullmatch(rest[len(topic) :]) is not None)


def _is_head(sink: tuple[str, str], ledgers: Ledgers) -> bool:
    return ledgers[sink][0] == sink[1]


def _find_owner(name: str, known: Iterable[tuple[str, str]], topics: Iterable[str]) -> tuple[str, str] | None:
    """The sink of a transactional id: one that has a ledger, or one whose topic exists."""
    found = _NAME.fullmatch(name)
    assert found is not None
    query_id, rest = found[1], found[2]
    fitting = [topic for query, topic in known if query == query_id and _begins_with(rest, topic)]
    fitting = fitting or [topic for topic in topics if _begins_with(rest, topic)]
    return (query_id, max(fitting, key=len)) if fitting else None


def _find_sink(client: Client, query_id: str, topic: str, ledgers: Ledgers, names: list[str]) -> Sink:
    start = f"{query_id}-{topic}"
    writers = [name for name in names if not _CLAIM.fullmatch(name.removeprefix(start))]
    states = find_transaction_states(client, writers)
    head = ledgers.get((query_id, topic))
    task_batches = {}
    for (query, rest), (of_topic, committed) in ledgers.items():
        task = _TASK.fullmatch(rest.removeprefix(topic))
        if query == query_id and of_topic == topic and task is not None:
            task_batches[int(task[1])] = committed.offset - 1
    return Sink(
        query_id,
        topic,
        head[1].offset - 1 if head is not None and head[1].offset > 0 else None,
        bool(task_batches) or any(name != start for name in writers),
        task_batches,
        tuple(states[name] for name in writers if name in states),
    )
