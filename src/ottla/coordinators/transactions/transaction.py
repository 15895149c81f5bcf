"""One transactional id: its producer, the state of its transaction, and the partitions in it.

A `Transaction` is immutable. The next state is another value, stored as one record. `TRANSITIONS` has every allowed
transition. In version 2 of the protocol (KIP-890) each transaction has an epoch of its own: the end of a transaction
raises the epoch, so a late request cannot get into the next transaction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from ottla.coordinators.machine import ProducerIdentity, StoredRecord
from ottla.coordinators.transactions.records import TransactionLogKey, TransactionLogValue, TransactionPartitions
from ottla.topic_partition import TopicPartition

NO_ID = -1
NO_EPOCH = -1
NEVER = -1
EPOCH_MAX = 32767
LAST_EPOCH = EPOCH_MAX - 1
"""The highest epoch that a producer gets. One more is needed to fence it."""

EPOCH_BUMP = 2
"""The version of the transaction protocol from which an end raises the epoch."""


class State(IntEnum):
    """The state of a transaction, with the number that Kafka's records have for it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expired. This state is never stored: a tombstone deletes the record instead."""
    PREPARE_EPOCH_FENCE = 7
    """A state of Kafka that is never stored here: one record raises the epoch and aborts."""

    @property
    def shown(self) -> str:
        """The name as Kafka's tools show it."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether commit or abort is decided and the markers are being written."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


_AT_REST: Mapping[State, str] = {
    State.EMPTY: "a producer asks who it is: it gets the next epoch",
    State.ONGOING: "the first partition, or group, joins a transaction",
    State.PREPARE_ABORT: "an abort with nothing to abort (version 2)",
    State.DEAD: "not used for transactional.id.expiration.ms",
}

_LANDED = "every marker has landed"

TRANSITIONS: Mapping[State, Mapping[State, str]] = {
    State.EMPTY: _AT_REST,
    State.ONGOING: {
        State.ONGOING: "another partition joins",
        State.PREPARE_COMMIT: "the producer commits",
        State.PREPARE_ABORT: "the producer aborts, takes too long, or is fenced",
    },
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT: _LANDED},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT: _LANDED},
    State.COMPLETE_COMMIT: _AT_REST,
    State.COMPLETE_ABORT: _AT_REST,
    State.DEAD: {},
}
"""The states that may follow each state, with the reason."""

STORED = frozenset(TRANSITIONS) - {State.DEAD}
"""The states that a record can have."""


class IllegalTransition(Exception):
    """A transition that `TRANSITIONS` does not have: a bug of the broker, never a mistake of a client."""


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NEVER
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    """Replaces a producer id whose epochs are used up, once the markers with the old id are written."""
    version: int = 0
    """The version of the transaction protocol that the client uses which began or ended the transaction."""

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether no epoch is left for the next producer."""
        return self.epoch >= LAST_EPOCH

    @property
    def raises_epoch(self) -> bool:
        return self.version >= EPOCH_BUMP

    @property
    def last_epoch(self) -> int:
        """The epoch of the ended transaction, if its end has raised the epoch."""
        if not self.raises_epoch or self.state in (State.EMPTY, State.ONGOING):
            return NO_EPOCH
        return LAST_EPOCH if self.is_rotated else self.epoch - 1

    @property
    def is_rotated(self) -> bool:
        """Whether this producer id has just replaced one whose epochs were used up."""
        return self.epoch == 0 and self.previous_producer_id not in (NO_ID, self.producer_id)

    def move_to(self, state: State, updated_ms: int, **changes: Any) -> "Transaction":
        """The transaction in its next state. Fields that are not named stay as they are."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"{self.transactional_id!r} cannot go from {self.state.shown} to {state.shown}")
        changes.setdefault("previous_producer_id", self.producer_id)
        return replace(self, state=state, updated_ms=updated_ms, **changes)

    # Records

    @property
    def record(self) -> StoredRecord:
        return StoredRecord(
            TransactionLogKey(transactional_id=self.transactional_id),
            TransactionLogValue(
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                transaction_timeout_ms=self.timeout_ms,
                transaction_status=self.state,
                # Kafka stores null in a state that cannot have partitions.
                transaction_partitions=None if self.state is State.EMPTY else self._group_records_by_topic(),
                transaction_last_update_timestamp_ms=self.updated_ms,
                transaction_start_timestamp_ms=self.started_ms,
                previous_producer_id=self.previous_producer_id,
                next_producer_id=self.next_producer_id,
                client_transaction_version=self.version,
            ),
        )

    @property
    def tombstone(self) -> StoredRecord:
        return StoredRecord(TransactionLogKey(transactional_id=self.transactional_id), None)

    def _group_records_by_topic(self) -> list[TransactionPartitions]:
        return [
            TransactionPartitions(topic=topic, partition_ids=indexes)
            for topic, indexes in group_by_topic(self.partitions).items()
        ]

    @classmethod
    def from_record(cls, key: TransactionLogKey, value: TransactionLogValue) -> "Transaction":
        return cls(
            key.transactional_id,
            value.producer_id,
            value.producer_epoch,
            value.transaction_timeout_ms,
            value.transaction_last_update_timestamp_ms,
            State(value.transaction_status),
            frozenset(
                TopicPartition(topic.topic, index)
                for topic in value.transaction_partitions or ()
                for index in topic.partition_ids
            ),
            value.transaction_start_timestamp_ms,
            value.previous_producer_id,
            value.next_producer_id,
            value.client_transaction_version,
        )


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, in a fixed order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics
