"""What a log remembers of its producers: enough to refuse or recognise a batch it has seen, and to end transactions.

Per producer id: its epoch, its last five batches (a client has at most five in flight), and where its open transaction
began. The leader calls `check` before it appends; `replay` is what changes the state, on leaders, followers and in
recovery alike, so all of them come to the same state from the same log.
"""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import ABORT, COMMIT, CONTROL, TRANSACTIONAL, BatchHeader, ControlMarker, sequence_after
from ottla.storage.transaction_index import AbortedTransaction

BATCHES_KEPT = 5
PRODUCERS_MAX = 5_000
"""Producers that a partition remembers, 2 to 3 MB. Above it those that have been silent for longest are forgotten, as
all are after producer.id.expiration.ms; Kafka keeps any number. A retry is recognised unless thousands of other
producers have written to the partition since the first attempt."""
EVICTED_AT_ONCE = PRODUCERS_MAX // 10
TRIMMED_EVERY = 500
"""After so many new producers, those that wrote nothing meanwhile keep only their last batch: 0.5 instead of 1.3 KB."""
SEQUENCE_MAX = 2**31 - 1
NO_TRANSACTION = -1


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int

    @classmethod
    def of(cls, header: BatchHeader, base_offset: int) -> "AppendedBatch":
        first, delta = header.base_sequence, header.last_offset_delta
        last = (first + delta) & SEQUENCE_MAX if first >= 0 else first
        return cls(first, last, base_offset, base_offset + delta, header.max_timestamp)


class ProducerState:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "has_lost_batches",
        "is_partial",
        "marker_offset",
        "producer_id",
        "timestamp",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.timestamp = -1
        self.transaction_start = NO_TRANSACTION
        self.marker_offset = NO_TRANSACTION
        """Offset of its last transaction marker, if this process has seen it. Not part of a snapshot."""
        self.is_partial = False
        """Whether only the last batch is known, after a snapshot or `_trim`. The log may have up to four more."""
        self.has_lost_batches = False
        """The log was searched for the batches before those that are known, and compaction had taken some of them."""
        self.batches: list[AppendedBatch] = []
        """The newest last. A list, because an empty deque takes 760 bytes, and most producers that are remembered have
        left after a few batches."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch. A new epoch begins with an empty history."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.has_lost_batches = False
            self.batches.clear()


class ProducerStates:
    __slots__ = ("_new", "_open", "_trimmed_at", "_undecided", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}
        """First offset of each open transaction and its producer id, in offset order: they begin in that order."""
        self._undecided: dict[int, int] = {}
        """First offset of each ended transaction and its marker's offset, until the high watermark passes that."""
        self._new = 0
        """Producers that were new since the last `_trim`, which took place when the log ended at `_trimmed_at`."""
        self._trimmed_at = 0

    # Before an append

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Check that a producer's batch may be appended next. Returns the earlier batch if this one is a retry of it.

        A batch without a sequence comes from a coordinator: only its epoch is checked. KafkaError with Kafka's error
        code if the batch must not be appended.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            # The state may have expired or been deleted with old segments, so any sequence number is accepted.
            return None
        if header.producer_epoch == producer.epoch and header.base_sequence >= 0:
            batches = producer.batches
            last = batches[-1].last_sequence if batches else -1
            if header.base_sequence != (last + 1) & SEQUENCE_MAX:
                return _duplicate_or_gap(producer, header)
        elif header.producer_epoch < producer.epoch:
            message = f"epoch {header.producer_epoch} of producer {header.producer_id}, which is at {producer.epoch}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        elif header.base_sequence > 0:
            message = f"epoch {header.producer_epoch} of producer {header.producer_id} must begin with sequence 0"
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        if producer.transaction_start != NO_TRANSACTION and not header.attributes & (TRANSACTIONAL | CONTROL):
            message = f"producer {header.producer_id} has a transaction open, this batch is not part of one"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, message)
        return None

    def check_marker(self, header: BatchHeader, marker: ControlMarker) -> None:
        """Check that this transaction marker may be appended; KafkaError if not."""
        self.check(header)
        producer = self.producers.get(header.producer_id)
        if producer is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            message = f"coordinator epoch {marker.coordinator_epoch}, {producer.coordinator_epoch} was seen"
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)

    def check_next_epoch(self, producer_id: int, epoch: int) -> None:
        """Check that a marker of transactions v2 may be appended: it has the epoch after its transaction's (KIP-890).

        A marker of the same epoch is a retry (KAFKA-19999), unless a transaction is open.
        """
        producer = self.producers.get(producer_id)
        if producer is None or epoch > producer.epoch:
            return
        if epoch == producer.epoch and producer.transaction_start == NO_TRANSACTION:
            return
        message = f"a marker with epoch {epoch} of producer {producer_id}, which is at {producer.epoch}"
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)

    def find_aborted_by(
        self, header: BatchHeader, base_offset: int, marker: ControlMarker
    ) -> AbortedTransaction | None:
        """The transaction index entry for an abort marker; None if the marker aborts nothing."""
        producer = self.producers.get(header.producer_id)
        if marker.type != ABORT or producer is None or producer.transaction_start == NO_TRANSACTION:
            return None
        others = (first for first, owner in self._open.items() if owner != header.producer_id)
        stable = next(others, base_offset + 1)
        return AbortedTransaction(header.producer_id, producer.transaction_start, base_offset, stable)

    # After an append

    def replay(self, header: BatchHeader, base_offset: int, marker: ControlMarker | None = None) -> None:
        """Update the state for a batch at `base_offset`. `marker` is the content of a control batch."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            self._make_room(base_offset)
            producer = self.producers[header.producer_id] = ProducerState(header.producer_id, header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.set_epoch(header.producer_epoch)
        producer.timestamp = header.max_timestamp
        if marker is not None:
            if marker.type in (ABORT, COMMIT):
                self._end_transaction(producer, base_offset, marker)
            return
        batches = producer.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(AppendedBatch.of(header, base_offset))
        if header.attributes & TRANSACTIONAL and producer.transaction_start == NO_TRANSACTION:
            producer.transaction_start = base_offset
            self._open[base_offset] = producer.producer_id

    def _end_transaction(self, producer: ProducerState, offset: int, marker: ControlMarker) -> None:
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.marker_offset = offset
        if producer.transaction_start != NO_TRANSACTION:
            self._open.pop(producer.transaction_start, None)
            self._undecided[producer.transaction_start] = offset
            producer.transaction_start = NO_TRANSACTION

    # The last stable offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open or whose marker is above the high watermark."""
        first_open = next(iter(self._open), None)
        if not self._undecided:
            return first_open
        first_undecided = min(self._undecided)
        return first_undecided if first_open is None else min(first_open, first_undecided)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset up to which a read_committed consumer may read."""
        if self._undecided:
            replicated = [first for first, marker in self._undecided.items() if marker < high_watermark]
            for first in replicated:
                del self._undecided[first]
        elif not self._open:
            return high_watermark
        first_unstable = self.first_unstable_offset
        return high_watermark if first_unstable is None else min(high_watermark, first_unstable)

    def has_transaction_since(self, time_ms: int) -> bool:
        """Whether a transaction is open whose producer has written nothing since that time."""
        return any(self.producers[producer_id].timestamp < time_ms for producer_id in self._open.values())

    # Keeping and forgetting

    def load(self, producers: Iterable[ProducerState], now_ms: int, expiration_ms: int) -> None:
        """Start from a snapshot."""
        self.clear()
        for producer in producers:
            if not _is_expired(producer, now_ms, expiration_ms):
                self.producers[producer.producer_id] = producer
        starts = ((producer.transaction_start, producer_id) for producer_id, producer in self.producers.items())
        self._open.update(sorted(entry for entry in starts if entry[0] != NO_TRANSACTION))

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without a batch for that long, unless a transaction is open. Returns their number."""
        gone = [key for key, producer in self.producers.items() if _is_expired(producer, now_ms, expiration_ms)]
        for key in gone:
            del self.producers[key]
        return len(gone)

    def _make_room(self, base_offset: int) -> None:
        """Keep the memory of producers that have left small, before a new one begins at `base_offset`."""
        if len(self.producers) >= PRODUCERS_MAX:
            self._evict()
        self._new += 1
        if self._new >= TRIMMED_EVERY:
            self._new = 0
            self._trim(self._trimmed_at)
            self._trimmed_at = base_offset

    def _trim(self, silent_since: int) -> None:
        """Keep only the last batch of each producer that has written nothing from this offset on."""
        for producer in self.producers.values():
            batches = producer.batches
            if len(batches) > 1 and batches[-1].base_offset < silent_since:
                producer.batches = batches[-1:]
                producer.is_partial = True

    def _evict(self) -> None:
        """Forget producers whose last batch is the oldest, unless a transaction is open."""
        idle = (producer for producer in self.producers.values() if producer.transaction_start == NO_TRANSACTION)
        for producer in nsmallest(EVICTED_AT_ONCE, idle, key=_find_last_offset):
            del self.producers[producer.producer_id]

    def clear(self) -> None:
        self.producers.clear()
        self._open.clear()
        self._undecided.clear()


def _duplicate_or_gap(producer: ProducerState, header: BatchHeader) -> AppendedBatch:
    first, last = header.base_sequence, sequence_after(header.base_sequence, header.last_offset_delta)
    for batch in producer.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    message = f"producer {header.producer_id} sent sequence {first} after {producer.last_sequence}"
    if producer.has_lost_batches and _is_between(first, last, producer.batches):
        # A producer's batches are appended in order, so this one was in the log. Nobody knows at which offset.
        raise KafkaError(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, message)
    raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)


def _is_between(first: int, last: int, batches: Sequence[AppendedBatch]) -> bool:
    """Whether sequence numbers from `first` to `last` come before the newest batch and are in none that is known."""
    if not batches or not 0 < (batches[-1].first_sequence - last) & SEQUENCE_MAX <= SEQUENCE_MAX // 2:
        return False
    count = (last - first) & SEQUENCE_MAX
    return not any(
        (first - batch.first_sequence) & SEQUENCE_MAX <= (batch.last_sequence - batch.first_sequence) & SEQUENCE_MAX
        or (batch.first_sequence - first) & SEQUENCE_MAX <= count
        for batch in batches
    )


def _find_last_offset(producer: ProducerState) -> int:
    """Where the producer's last batch or marker is."""
    return max(producer.batches[-1].last_offset if producer.batches else -1, producer.marker_offset)


def _is_expired(producer: ProducerState, now_ms: int, expiration_ms: int) -> bool:
    return producer.transaction_start == NO_TRANSACTION and now_ms - producer.timestamp >= expiration_ms
