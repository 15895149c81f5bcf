"""Exactly-once with one transaction for a whole batch of a streaming query: the driver's side.

    begin      raises the producer epoch, which fences earlier writers and aborts their open transaction; then reads
               the ledger: has the batch landed already?
    (tasks)    produce with the identity from `begin`; each partition is written by one task, with sequence numbers
               from 0, and only the first attempt of a task may write (`claims`)
    commit     adds the ledger and the offsets of the source's groups to the transaction, and commits it
    abort      aborts the transaction after a failure; the next `begin` would do the same

The ledger is the committed offset of group `<query>-<topic>` for partition 0 of the topic. Batch n has landed (its rows
are committed) if the offset is n + 1 or more. The ledger is part of the transaction, so it is always true. Nothing
depends on which task wrote which row, so a batch that runs again after a crash may be planned differently.

When the answer to a commit is lost, the ledger decides whether the batch has landed, never the error.
"""

from collections.abc import Mapping

from ottla.client.client import Client
from ottla.client.connection import Unreachable
from ottla.client.exactly_once.claims import ClaimBook
from ottla.client.groups import CommittedOffset, fetch_offsets
from ottla.client.transactions import ProducerIdentity, commit_offsets_in_transaction, end_transaction, init_producer
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition

TIMEOUT_MS = 300_000
"""The broker aborts a transaction after this time. Readers wait as long for one that a crash left open."""


class LedgerLost(Exception):
    """The ledger is gone, so it is unknown whether the batch has landed. The message is one line."""


def ledger_name(query_id: str, topic: str) -> str:
    """The transactional id, which is also the group that holds the ledger."""
    return f"{query_id}-{topic}"


def has_landed(ledger: CommittedOffset | None, batch_id: int, name: str, *, resume: bool = False) -> bool:
    """Whether the ledger says that the batch has landed.

    Raises LedgerLost if there is no ledger although there were earlier batches, unless `resume`.
    """
    if ledger is not None:
        return ledger.offset > batch_id
    if batch_id > 0 and not resume:
        raise LedgerLost(
            f"the ledger {name!r} is gone: a broker deletes offsets of an idle group after offsets.retention.minutes. "
            f"Batch {batch_id} may have been written before. Check the end of the topic; if the batch is not there, "
            "start the query with the option withoutLedger=true"
        )
    return False


class BatchLedger:
    def __init__(
        self, client: Client, query_id: str, topic: str, *, timeout_ms: int = TIMEOUT_MS, resume: bool = False
    ) -> None:
        """`resume`: a batch without a ledger has not landed."""
        self._client = client
        self.name = ledger_name(query_id, topic)
        self._where = TopicPartition(topic, 0)
        self._timeout_ms = timeout_ms
        self._resume = resume
        self._producer: ProducerIdentity | None = None
        self._last_batch: int | None = None
        """The last batch that this object has committed."""
        self.claims = ClaimBook(client, self.name)
        """Which attempt of each task may write."""
        self._successor: ProducerIdentity | None = None
        """The identity for the next batch, if the broker gave one with the last commit. It proves that nobody else has
        written since, so `begin` needs no request."""

    def begin(self, batch_id: int) -> ProducerIdentity | None:
        """The identity with which all tasks of the batch write; None if the batch has landed."""
        follows = self._last_batch is not None and batch_id > self._last_batch
        successor, self._successor = self._successor, None
        if follows and successor is not None:
            self._producer = successor
            return successor
        self._producer = init_producer(self._client, self.name, self._timeout_ms)
        if has_landed(self._read(), batch_id, self.name, resume=self._resume or follows):
            self._producer = None
        return self._producer

    def commit(self, batch_id: int, sources: Mapping[str, Mapping[TopicPartition, int]] | None = None) -> None:
        """Commit the batch together with `sources`, the end offsets of what was read, by group.

        An error means that the batch has not landed, or that this is unknown; then the next `begin` finds out.
        """
        assert self._producer is not None, "begin comes first"
        producer, self._producer = self._producer, None
        landed = {self._where: CommittedOffset(batch_id + 1, f"batch {batch_id}")}
        commit_offsets_in_transaction(self._client, producer, self.name, landed)
        for group, offsets in (sources or {}).items():
            if offsets:
                committed = {where: CommittedOffset(offset) for where, offset in offsets.items()}
                commit_offsets_in_transaction(self._client, producer, group, committed)
        try:
            successor = end_transaction(self._client, producer, commit=True)
            self._successor = None if successor == producer else successor
        except (KafkaError, Unreachable):
            if not self._has_landed(batch_id):
                raise
        self._last_batch = batch_id

    def abort(self) -> None:
        """Abort the transaction. If that fails, the next `begin` does it, or the broker after the timeout."""
        producer, self._producer = self._producer, None
        self.claims.forget()
        if producer is not None:
            end_quietly(self._client, producer)

    def last_batch(self) -> int | None:
        """The newest batch that has landed, from the ledger."""
        found = self._read()
        return None if found is None else found.offset - 1

    def _read(self) -> CommittedOffset | None:
        return fetch_offsets(self._client, self.name, [self._where], require_stable=True).get(self._where)

    def _has_landed(self, batch_id: int) -> bool:
        try:
            found = self._read()
        except (KafkaError, Unreachable):
            return False
        return found is not None and found.offset > batch_id


def end_quietly(client: Client, producer: ProducerIdentity) -> None:
    """Abort a transaction if that is possible. Errors are ignored: it may have ended, or the broker may be away."""
    try:
        end_transaction(client, producer, commit=False)
    except (KafkaError, Unreachable):
        return
