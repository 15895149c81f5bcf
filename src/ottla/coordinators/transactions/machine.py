"""The machine of one partition of `__transaction_state`: decides about the transactional ids that it keeps.

A transaction ends in two steps. The first record (PREPARE_COMMIT or PREPARE_ABORT) decides how it ends, and the client
gets its response. Then an errand writes a marker into every partition of the transaction. If the coordinator dies, the
next one that loads the record starts the errand again. The second record (COMPLETE_COMMIT or COMPLETE_ABORT) says that
all markers are written.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinators.machine import NOTHING, Outcome, ProducerIdentity, Reply, StoredRecord, Turn
from ottla.coordinators.transactions.records import TransactionLogKey, TransactionLogValue
from ottla.coordinators.transactions.rules import (
    FreshIdNeeded,
    complete,
    concurrent_error,
    ends_with_next_epoch,
    ends_with_same_epoch,
    fenced_error,
    may_continue,
    prepare,
    require_fresh_id,
    wrong_id_error,
)
from ottla.coordinators.transactions.transaction import (
    EPOCH_BUMP,
    NEVER,
    NO_EPOCH,
    NO_ID,
    STORED,
    State,
    Transaction,
    group_by_topic,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.describe_transactions import TopicData, TransactionState
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger(__name__)

FEATURE = "transaction.version"

RECORDS_MAX = 100
"""How many overdue transactions one turn aborts, and how many expired ids it deletes: it writes one batch."""


class WriteMarkers(NamedTuple):
    """An errand: write a marker into every partition of an ended transaction, then call `complete`."""

    transactional_id: str
    producer: ProducerIdentity
    committed: bool
    partitions: frozenset[TopicPartition]
    version: int


class AbortWithFreshId(NamedTuple):
    """An errand: get a new producer id, then call `abort_overdue` with it."""

    transactional_id: str
    producer: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of ListTransactions. An empty filter accepts all."""

    states: frozenset[State] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1

    def accept(self, transaction: Transaction, now_ms: int) -> bool:
        if self.states and transaction.state not in self.states:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.longer_than_ms < 0:
            return True
        return transaction.started_ms != NEVER and now_ms - transaction.started_ms > self.longer_than_ms


class TransactionMachine:
    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        self._deadlines: dict[str, int] = {}
        """When each ongoing transaction times out, on the monotonic clock: a step of the wall clock aborts none."""
        self._bumped_from: dict[str, int] = {}
        """The epoch of each producer before its last InitProducerId, to recognise a retry. As in Kafka, in memory
        only."""
        self._next_overdue_check = 0
        self._next_expiry_check = 0

    # InitProducerId

    def init_producer_id(self, request: InitProducerIdRequest, turn: Turn, fresh_id: int | None = None) -> Outcome:
        transactional_id = request.transactional_id
        assert transactional_id is not None
        if not 0 < request.transaction_timeout_ms <= turn.config.transaction_max_timeout_ms:
            longest_ms = turn.config.transaction_max_timeout_ms
            message = f"a transaction time-out is between 1 and {longest_ms} ms (transaction.max.timeout.ms)"
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
        known = self.by_id.get(transactional_id)
        if known is None:
            fresh = Transaction(
                transactional_id, require_fresh_id(fresh_id), 0, request.transaction_timeout_ms, updated_ms=turn.wall_ms
            )
            return self._initialise(fresh, NO_EPOCH, turn)
        expected = (
            ProducerIdentity(request.producer_id, request.producer_epoch) if request.producer_id != NO_ID else None
        )
        if known.state.is_prepared:
            raise concurrent_error(known)
        if expected is not None and not may_continue(known, expected):
            raise fenced_error(known, expected)
        if known.state is State.ONGOING:
            # No producer gets the epoch of this abort: the client tries again, and that raises the epoch once more.
            if expected is not None and expected.epoch != known.epoch:
                raise fenced_error(known, expected)
            outcome = self._abort(known, turn, concurrent_error(known), fresh_id)
            turn.meters.transactions.fenced += 1
            return outcome
        return self._raise_epoch(known, expected, request.transaction_timeout_ms, turn, fresh_id)

    def _raise_epoch(
        self, known: Transaction, expected: ProducerIdentity | None, timeout_ms: int, turn: Turn, fresh_id: int | None
    ) -> Outcome:
        producer_id, epoch, last_epoch = known.producer_id, known.epoch + 1, NO_EPOCH
        if expected is None or expected.epoch == known.epoch:
            last_epoch = NO_EPOCH if expected is None else known.epoch
            if known.is_exhausted:
                producer_id, epoch = require_fresh_id(fresh_id), 0
        elif expected.epoch == self._find_last_epoch(known):
            epoch, last_epoch = (
                known.epoch,
                expected.epoch,
            )  # a retry, because the response was lost: send the same one again
        else:
            raise fenced_error(known, expected)
        changed = known.move_to(
            State.EMPTY,
            turn.wall_ms,
            producer_id=producer_id,
            epoch=epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NEVER,
        )
        return self._initialise(changed, last_epoch, turn)

    def _initialise(self, transaction: Transaction, last_epoch: int, turn: Turn) -> Outcome:
        self._bumped_from[transaction.transactional_id] = last_epoch
        response = InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)
        return Outcome.answer(turn, response, (transaction.record,))

    def _find_last_epoch(self, known: Transaction) -> int:
        if known.state is State.EMPTY:
            return self._bumped_from.get(known.transactional_id, NO_EPOCH)
        return known.last_epoch

    # Partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        turn: Turn,
        *,
        version: int,
    ) -> Outcome:
        """Make partitions, also of `__consumer_offsets`, part of the transaction. The first ones begin it."""
        known = self._require_owner(transactional_id, producer)
        added = frozenset(partitions)
        if known.state is State.ONGOING:
            if added <= known.partitions:
                return Outcome.answer(turn, None)
            changed = known.move_to(State.ONGOING, turn.wall_ms, partitions=known.partitions | added, version=version)
        else:
            changed = known.move_to(
                State.ONGOING, turn.wall_ms, partitions=added, started_ms=turn.wall_ms, version=version
            )
            self._deadlines[transactional_id] = turn.monotonic_ms + known.timeout_ms
        return Outcome.answer(turn, None, (changed.record,))

    def find_missing_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition], turn: Turn
    ) -> Outcome:
        """Find the partitions that are not in the producer's transaction: it must not write to them."""
        known = self._require_owner(transactional_id, producer)
        missing = frozenset(partitions) - (known.partitions if known.state is State.ONGOING else frozenset())
        return Outcome.answer(turn, missing)

    def _require_owner(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        known = self._require(transactional_id)
        if known.state.is_prepared and producer == (known.next_producer_id, 0):
            raise concurrent_error(
                known
            )  # the response to its EndTxn had the next producer id, which is not in force yet
        if producer.id != known.producer_id:
            raise wrong_id_error(known, producer)
        if producer.epoch != known.epoch:
            raise fenced_error(known, producer)
        if known.state.is_prepared:
            raise concurrent_error(known)
        return known

    def _require(self, transactional_id: str) -> Transaction:
        known = self.by_id.get(transactional_id)
        if known is None:
            message = f"there is no transactional id {transactional_id!r}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
        return known

    # The end

    def end(self, request: EndTxnRequest, turn: Turn, *, version: int, fresh_id: int | None = None) -> Outcome:
        """Commit or abort. From version 2 on the response has the producer's next epoch, or its next id."""
        known = self._require(request.transactional_id)
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        raised = version >= EPOCH_BUMP
        is_due = ends_with_next_epoch if raised else ends_with_same_epoch
        if is_due(known, producer, request.committed):
            ended = prepare(known, request.committed, turn, version, raised=raised, fresh_id=fresh_id)
            if request.committed:
                turn.meters.transactions.committed += 1
            else:
                turn.meters.transactions.aborted += 1
            return self._end(ended, turn, build_end_response(ended, raised))
        return Outcome.answer(turn, build_end_response(known, raised))

    def _abort(self, known: Transaction, turn: Turn, reply: KafkaError | None, fresh_id: int | None) -> Outcome:
        """Abort a transaction that its producer did not end. The next epoch fences that producer."""
        version = turn.image.features.get(FEATURE, 0)
        return self._end(prepare(known, False, turn, version, raised=True, fresh_id=fresh_id), turn, reply)

    def _end(self, prepared: Transaction, turn: Turn, reply: EndTxnResponse | KafkaError | None) -> Outcome:
        self._deadlines.pop(prepared.transactional_id, None)
        replies = () if reply is None else (Reply(turn.ticket, reply),)
        if not prepared.partitions:
            return Outcome((prepared.record, complete(prepared, turn).record), replies)
        return Outcome((prepared.record,), replies, errands=(build_marker_errand(prepared),))

    def complete(self, transactional_id: str, producer: ProducerIdentity, turn: Turn) -> Outcome:
        """All markers are written. Nothing is done if the transaction was completed before."""
        known = self.by_id.get(transactional_id)
        if known is None or not known.state.is_prepared or known.producer != producer:
            return Outcome.answer(turn, None)
        return Outcome.answer(turn, None, (complete(known, turn).record,))

    # Description

    def describe(self, transactional_id: str, turn: Turn) -> Outcome:
        known = self.by_id.get(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        description = TransactionState(
            transactional_id=transactional_id,
            transaction_state=known.state.shown,
            transaction_timeout_ms=known.timeout_ms,
            transaction_start_time_ms=known.started_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
            topics=[
                TopicData(topic=topic, partitions=indexes)
                for topic, indexes in group_by_topic(known.partitions).items()
            ],
        )
        return Outcome.answer(turn, description)

    def list_transactions(self, filters: Filters, turn: Turn) -> Outcome:
        taken = [known for known in self.by_id.values() if filters.accept(known, turn.wall_ms)]
        return Outcome.answer(turn, taken)

    # Time

    @property
    def wake_at(self) -> int | None:
        if not self.by_id:
            return None
        if not self._deadlines:
            return self._next_expiry_check
        return min(self._next_overdue_check, self._next_expiry_check)

    def wake(self, turn: Turn) -> Outcome:
        now = turn.monotonic_ms
        outcomes = []
        if now >= self._next_overdue_check:
            overdue = [name for name, deadline in self._deadlines.items() if now >= deadline]
            interval = turn.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._next_overdue_check = now + (0 if len(overdue) > RECORDS_MAX else interval)
            outcomes += [self._abort_or_get_id(self.by_id[name], turn) for name in overdue[:RECORDS_MAX]]
        if now >= self._next_expiry_check:
            expired = self._find_expired(turn)
            interval = turn.config.transaction_remove_expired_transaction_cleanup_interval_ms
            self._next_expiry_check = now + (0 if len(expired) > RECORDS_MAX else interval)
            outcomes.append(Outcome([transaction.tombstone for transaction in expired[:RECORDS_MAX]]))
        return Outcome.merge(outcomes)

    def _abort_or_get_id(self, known: Transaction, turn: Turn) -> Outcome:
        try:
            return self._abort_timed_out(known, turn, None)
        except FreshIdNeeded:
            return Outcome(errands=(AbortWithFreshId(known.transactional_id, known.producer),))

    def abort_overdue(self, transactional_id: str, producer: ProducerIdentity, turn: Turn, fresh_id: int) -> Outcome:
        known = self.by_id.get(transactional_id)
        if known is None or known.state is not State.ONGOING or known.producer != producer:
            return NOTHING  # the transaction has ended meanwhile
        return self._abort_timed_out(known, turn, fresh_id)

    def _abort_timed_out(self, known: Transaction, turn: Turn, fresh_id: int | None) -> Outcome:
        outcome = self._abort(known, turn, None, fresh_id)
        turn.meters.transactions.timed_out += 1
        return outcome

    def _find_expired(self, turn: Turn) -> list[Transaction]:
        limit = turn.wall_ms - turn.config.transactional_id_expiration_ms
        return [
            known
            for known in self.by_id.values()
            if known.updated_ms <= limit and known.state is not State.ONGOING and not known.state.is_prepared
        ]

    # Replay

    def replay(self, record: StoredRecord, written_ms: int, producer: ProducerIdentity | None) -> None:
        key, value = record
        assert isinstance(key, TransactionLogKey)
        if not isinstance(value, TransactionLogValue):
            self.by_id.pop(key.transactional_id, None)
            self._bumped_from.pop(key.transactional_id, None)
        elif value.transaction_status in STORED:
            self.by_id[key.transactional_id] = Transaction.from_record(key, value)
        else:
            logger.error(
                "the record of transactional id %r is skipped: its state %d is unknown",
                key.transactional_id,
                value.transaction_status,
            )

    def end_transaction(self, producer: ProducerIdentity, committed: bool) -> None:
        """Never called: no transaction writes to `__transaction_state`."""

    def finish_loading(self, turn: Turn) -> Outcome:
        """Start the errands of transactions that were decided. Ongoing ones get the rest of their time-out."""
        prepared = []
        for known in self.by_id.values():
            if known.state.is_prepared:
                prepared.append(build_marker_errand(known))
            elif known.state is State.ONGOING:
                elapsed = min(max(turn.wall_ms - known.started_ms, 0), known.timeout_ms)
                self._deadlines[known.transactional_id] = turn.monotonic_ms + known.timeout_ms - elapsed
        return Outcome(errands=prepared)


def build_marker_errand(prepared: Transaction) -> WriteMarkers:
    return WriteMarkers(
        prepared.transactional_id,
        prepared.producer,
        prepared.state is State.PREPARE_COMMIT,
        prepared.partitions,
        prepared.version,
    )


def build_end_response(ended: Transaction, raised: bool) -> EndTxnResponse:
    """The response to EndTxn: the producer's next id and epoch, if the end has raised the epoch."""
    if not raised:
        return EndTxnResponse()
    if ended.next_producer_id != NO_ID:
        return EndTxnResponse(producer_id=ended.next_producer_id, producer_epoch=0)
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)
