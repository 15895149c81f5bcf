"""Which error a producer gets for a batch that it has sent behind a refused one.

Idempotent producers have several batches in flight. If one cannot be written for the moment, those behind it are out of
order. OUT_OF_ORDER_SEQUENCE_NUMBER would be true, but librdkafka then takes a new producer epoch for all partitions,
and sends again what it has no answer for: copies that no broker can recognise. The error of the refused batch makes the
producer send all of them again in order.

The refused batch can also be one that only an earlier leader has seen. When an election ends librdkafka's requests to
that leader, it may send later batches to the new one before those that failed (librdkafka issue 4953). So the first
gaps of a producer after an election get NOT_LEADER_OR_FOLLOWER, each batch once: what is in order when it comes again
is written, and a gap that is still there is answered as one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import BatchHeader, sequence_after
from ottla.storage.producer_state import ProducerState

REFUSED_MAX = 1000
"""Producers with a refused batch that one partition remembers. Then it forgets them all."""

BEHIND_GAP_MAX = 10
"""Batches behind a gap that are remembered of a producer. It has at most 5 in flight."""

TEMPORARY = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Clients may know of an election before the new leader does, which refuses what comes then."""
SEQUENCES = 1 << 31


class Refused(NamedTuple):
    """The batches of a producer that were refused and are not in the log yet."""

    producer_epoch: int
    error: KafkaError | None = None
    """The temporary error of the batch `first`, and of those behind it. None if there is no such batch."""
    first: int = 0
    """Base sequence of the first batch that got `error`."""
    last: int = 0
    """Base sequence of the last one."""
    behind_gap: tuple[int, ...] = ()
    """Base sequences of batches that were refused because one before them has not come. Perhaps it never does."""


class RefusedBatches(dict[int, Refused]):
    """What is known of one partition, by producer id.

    A producer is removed when nothing that was refused is missing in the log. This is a dict, rather than an object
    that has one, because every append asks whether it is empty.
    """

    __slots__ = ()

    def explain(self, header: BatchHeader, error: KafkaError) -> KafkaError:
        """A batch was refused with `error`. Returns the error for its producer."""
        if header.producer_id < 0:
            return error
        sequence, known = header.base_sequence, self._find(header)
        if error.code in TEMPORARY:
            if known.error is None:
                known = known._replace(error=error, first=sequence, last=sequence)
            elif not _is_at_or_after(sequence, known.first):
                known = known._replace(error=error, first=sequence)
            explained = error
        elif (
            error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and known.error is not None
            and sequence != known.first
            and _is_at_or_after(sequence, known.first)
        ):
            explained = known.error
        else:
            return error
        if not _is_at_or_after(known.last, sequence):
            known = known._replace(last=sequence)
        self._keep(header, known)
        return explained

    def explain_gap(
        self,
        header: BatchHeader,
        error: KafkaError,
        producers: Mapping[int, ProducerState],
        epoch_start: int,
    ) -> KafkaError:
        """Like `explain`, for a batch that is out of order. The leader's epoch began at offset `epoch_start`."""
        explained = self.explain(header, error)
        producer = producers.get(header.producer_id)
        if explained is not error or producer is None or not _had_sent_before(epoch_start, producer):
            return explained
        sequence, known = header.base_sequence, self._find(header)
        needed = sequence_after(producer.last_sequence, 1) if producer.epoch == header.producer_epoch else 0
        if (
            not _is_at_or_after(sequence, needed)
            or sequence in known.behind_gap  # it was refused once already
            or len(known.behind_gap) == BEHIND_GAP_MAX
        ):
            return error
        self._keep(header, known._replace(behind_gap=(*known.behind_gap, sequence)))
        message = f"{error.message}; what is between them may have gone to an earlier leader"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)

    def note_append(self, header: BatchHeader) -> None:
        """A batch of a producer is in the log. It may be a retry of one before those that were refused."""
        last_sequence = sequence_after(header.base_sequence, header.last_offset_delta)
        self._forget_up_to(header.producer_id, header.producer_epoch, last_sequence)

    def note_election(self, producers: Mapping[int, ProducerState]) -> None:
        """This broker begins to lead: forget batches that another leader has appended since, and all gaps."""
        for producer_id, known in list(self.items()):
            producer = producers.get(producer_id)
            if known.error is None:
                del self[producer_id]
            else:
                self[producer_id] = known._replace(behind_gap=())
                if producer is not None:
                    self._forget_up_to(producer_id, producer.epoch, producer.last_sequence)

    def _find(self, header: BatchHeader) -> Refused:
        """What is known of the producer in the epoch of the batch."""
        known = self.get(header.producer_id)
        epoch = header.producer_epoch
        return Refused(epoch) if known is None or known.producer_epoch != epoch else known

    def _keep(self, header: BatchHeader, known: Refused) -> None:
        if header.producer_id not in self and len(self) >= REFUSED_MAX:
            self.clear()
        self[header.producer_id] = known

    def _forget_up_to(self, producer_id: int, epoch: int, last_sequence: int) -> None:
        """The log has the producer's batches up to `last_sequence`."""
        known = self.get(producer_id)
        if known is None:
            return
        if epoch != known.producer_epoch:
            del self[producer_id]
            return
        behind_gap = tuple(sequence for sequence in known.behind_gap if not _is_at_or_after(last_sequence, sequence))
        error, first = known.error, known.first
        if error is not None and _is_at_or_after(last_sequence, known.last):
            error = None
        elif error is not None and _is_at_or_after(last_sequence, first):
            first = sequence_after(last_sequence, 1)
        if error is None and not behind_gap:
            del self[producer_id]
        else:
            self[producer_id] = Refused(epoch, error, first, known.last, behind_gap)


def _had_sent_before(epoch_start: int, producer: ProducerState) -> bool:
    """Whether one of the producer's last batches, of which it may have had all in flight, came before the epoch."""
    return bool(producer.batches) and producer.batches[0].base_offset < epoch_start


def _is_at_or_after(sequence: int, other: int) -> bool:
    """Whether a sequence number, which wraps around at 2^31, is the other one or comes after it."""
    return (sequence - other) % SEQUENCES < SEQUENCES // 2
