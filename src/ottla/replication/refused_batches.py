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

TEMPORARY = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Clients may know of an election before the new leader does, which refuses what comes then."""
SEQUENCES = 1 << 31


class Refusal(NamedTuple):
    """The batches of a producer that were refused and are not in the log yet."""

    producer_epoch: int
    first: int
    """Base sequence of the first refused batch."""
    last: int
    """Base sequence of the last refused batch."""
    error: KafkaError
    is_gap: bool = False
    """They were refused because a batch before `first` has not come. Perhaps it never does."""


RefusedBatches = dict[int, Refusal]
"""By producer id. A producer is removed when the last batch that was refused is in the log."""


def explain_refusal(refused: RefusedBatches, header: BatchHeader, error: KafkaError) -> KafkaError:
    """The error for the producer of a batch that was refused with `error`."""
    producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
    if producer_id < 0:
        return error
    known = refused.get(producer_id)
    if known is not None and (known.producer_epoch != epoch or known.is_gap):
        known = None
    if error.code in TEMPORARY:
        if known is None and len(refused) >= REFUSED_MAX:
            refused.clear()
        if known is None or not _is_at_or_after(sequence, known.first):
            refused[producer_id] = Refusal(epoch, sequence, sequence if known is None else known.last, error)
            return error
    elif (
        error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        or known is None
        or sequence == known.first
        or not _is_at_or_after(sequence, known.first)
    ):
        return error
    if not _is_at_or_after(known.last, sequence):
        refused[producer_id] = known._replace(last=sequence)
    return error if error.code in TEMPORARY else known.error


def explain_gap(
    refused: RefusedBatches,
    header: BatchHeader,
    error: KafkaError,
    producers: Mapping[int, ProducerState],
    epoch_start: int,
) -> KafkaError:
    """Like `explain_refusal`, for a batch that is out of order. The leader's epoch began at offset `epoch_start`."""
    explained = explain_refusal(refused, header, error)
    producer = producers.get(header.producer_id)
    if explained is not error or producer is None or not _had_sent_before(epoch_start, producer):
        return explained
    epoch, sequence = header.producer_epoch, header.base_sequence
    needed = sequence_after(producer.last_sequence, 1) if producer.epoch == epoch else 0
    if not _is_at_or_after(sequence, needed):
        return error
    first = last = sequence
    known = refused.get(header.producer_id)
    if known is not None and known.is_gap and known.producer_epoch == epoch:
        if not _is_at_or_after(sequence, known.first):
            last = known.last
        elif not _is_at_or_after(known.last, sequence):
            first = known.first
        else:
            return error  # it was refused once already
    if known is None and len(refused) >= REFUSED_MAX:
        refused.clear()
    message = f"{error.message}; what is between them may have gone to an earlier leader"
    refusal = Refusal(epoch, first, last, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message), is_gap=True)
    refused[header.producer_id] = refusal
    return refusal.error


def _had_sent_before(epoch_start: int, producer: ProducerState) -> bool:
    """Whether one of the producer's last batches, of which it may have had all in flight, came before the epoch."""
    return bool(producer.batches) and producer.batches[0].base_offset < epoch_start


def forget_refusal(refused: RefusedBatches, header: BatchHeader) -> None:
    """A batch of a producer is in the log. It may be a retry of one before those that were refused."""
    known = refused.get(header.producer_id)
    if known is not None:
        last_sequence = sequence_after(header.base_sequence, header.last_offset_delta)
        _forget_up_to(refused, header.producer_id, known, header.producer_epoch, last_sequence)


def forget_appended(refused: RefusedBatches, producers: Mapping[int, ProducerState]) -> None:
    """This broker begins to lead: forget refusals of batches that another leader has appended since, and all gaps."""
    for producer_id, known in list(refused.items()):
        producer = producers.get(producer_id)
        if known.is_gap:
            del refused[producer_id]
        elif producer is not None:
            _forget_up_to(refused, producer_id, known, producer.epoch, producer.last_sequence)


def _forget_up_to(refused: RefusedBatches, producer_id: int, known: Refusal, epoch: int, last_sequence: int) -> None:
    """The log has the producer's batches up to `last_sequence`."""
    if epoch != known.producer_epoch or _is_at_or_after(last_sequence, known.last):
        del refused[producer_id]
    elif _is_at_or_after(last_sequence, known.first):
        refused[producer_id] = known._replace(first=sequence_after(last_sequence, 1))


def _is_at_or_after(sequence: int, other: int) -> bool:
    """Whether a sequence number, which wraps around at 2^31, is the other one or comes after it."""
    return (sequence - other) % SEQUENCES < SEQUENCES // 2
