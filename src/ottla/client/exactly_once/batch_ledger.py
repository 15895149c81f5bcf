"""Exactly-once, one transaction for a whole batch of a streaming query: the driver's side.

    begin      a new epoch (who wrote before is fenced, what it left open is aborted); has the batch landed already?
    (tasks)    produce with the identity that `begin` gave, each partition by one task, sequences from 0; of all tries
               at a task only the first (`claims`)
    commit     the ledger, and the offsets of the source's groups, in the same transaction; then its end
    abort      after a failure; the next `begin` would do the same

The ledger is an offset that the group `<query>-<topic>` commits for partition 0 of the topic: batch n has landed if it
is n + 1 or more. It is part of the transaction, so it cannot say anything that is not so. Nothing depends on which task
wrote which row, so a batch that is repeated after a crash may be planned differently.

What is left in doubt by a lost answer is settled by reading the ledger, never by the error itself.
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
"""A batch must be done within this time, or the broker aborts it; readers wait as long for what a crash left open."""


class LedgerLost(Exception):
    """Nobody can tell whether the batch has landed; one line."""


def ledger_name(query_id: str, topic: str) -> str:
    """The transactional id, and the group that holds the ledger."""
    return f"{query_id}-{topic}"


def has_landed(ledger: CommittedOffset | None, batch_id: int, name: str, *, resume: bool = False) -> bool:
    """Whether a ledger says so. LedgerLost if it is missing although batches came before, unless `resume`."""
    if ledger is not None:
        return ledger.offset > batch_id
    if batch_id > 0 and not resume:
        raise LedgerLost(
            f"the ledger {name!r} is gone: offsets of a group that stands still are deleted after "
            f"offsets.retention.minutes. Batch {batch_id} may have been written before. Look at the end of the topic; "
            "if the batch is not there, tell the query to go on without its ledger"
        )
    return False


class BatchLedger:
    def __init__(
        self, client: Client, query_id: str, topic: str, *, timeout_ms: int = TIMEOUT_MS, resume: bool = False
    ) -> None:
        """`resume` says that a batch whose ledger is gone has not landed."""
        self._client = client
        self.name = ledger_name(query_id, topic)
        self._where = TopicPartition(topic, 0)
        self._timeout_ms = timeout_ms
        self._resume = resume
        self._producer: ProducerIdentity | None = None
        self._last_batch: int | None = None
        """That was committed here."""
        self.claims = ClaimBook(client, self.name)
        """Who may write, of those who have the batch's identity."""
        self._successor: ProducerIdentity | None = None
        """Who writes after the last batch, if the broker has said so: nobody else has written since."""

    def begin(self, batch_id: int) -> ProducerIdentity | None:
        """The identity that all tasks of the batch write with; None if it has landed."""
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
        """End the batch; with it `sources`, the offsets behind what was read, by group. An error means that it has not
        landed, or that nobody can tell now: `begin` will know."""
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
            if not self._landed_after_all(batch_id):
                raise
        self._last_batch = batch_id

    def abort(self) -> None:
        """Undo what the tasks have written. If that fails the next `begin` does it, or in the end the broker."""
        producer, self._producer = self._producer, None
        self.claims.forget()
        if producer is not None:
            end_quietly(self._client, producer)

    def last_batch(self) -> int | None:
        """The newest batch that has landed, by the ledger."""
        found = self._read()
        return None if found is None else found.offset - 1

    def _read(self) -> CommittedOffset | None:
        return fetch_offsets(self._client, self.name, [self._where], require_stable=True).get(self._where)

    def _landed_after_all(self, batch_id: int) -> bool:
        try:
            found = self._read()
        except (KafkaError, Unreachable):
            return False
        return found is not None and found.offset > batch_id


def end_quietly(client: Client, producer: ProducerIdentity) -> None:
    """Abort, where it does not matter if that is possible: it was never begun, ended already, or nobody answers."""
    try:
        end_transaction(client, producer, commit=False)
    except (KafkaError, Unreachable):
        return
