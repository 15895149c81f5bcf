"""Which error a producer gets for a batch that it has sent behind a refused one.

Idempotent producers have several batches in flight. If one cannot be written for the moment, those behind it are out of
order. OUT_OF_ORDER_SEQUENCE_NUMBER would be true, but librdkafka then takes a new producer epoch for all partitions,
and sends again what it has no answer for: copies that no broker can recognise. The error of the refused batch makes the
producer send all of them again in order.
"""

from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import BatchHeader

REFUSED_MAX = 1000
"""Producers with a refused batch that one partition remembers. Then it forgets them all."""

TEMPORARY = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS)
SEQUENCES = 1 << 31


class Refusal(NamedTuple):
    """The first batch of a producer that was refused and is not in the log yet."""

    producer_epoch: int
    base_sequence: int
    error: KafkaError


RefusedBatches = dict[int, Refusal]
"""By producer id. A producer is removed when the batch that was refused is in the log."""


def explain_refusal(refused: RefusedBatches, header: BatchHeader, error: KafkaError) -> KafkaError:
    """The error for the producer of a batch that was refused with `error`."""
    producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
    if producer_id < 0:
        return error
    known = refused.get(producer_id)
    is_known = known is not None and known.producer_epoch == epoch
    if error.code in TEMPORARY and not is_known:
        if len(refused) >= REFUSED_MAX:
            refused.clear()
        refused[producer_id] = Refusal(epoch, sequence, error)
    elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_known:
        assert known is not None
        if known.base_sequence != sequence and _is_at_or_after(sequence, known.base_sequence):
            return known.error
    return error


def forget_refusal(refused: RefusedBatches, header: BatchHeader) -> None:
    """A batch of a producer is in the log. If it is the refused one, or one behind it, nothing more is out of order.

    A batch before the refused one may be a retry, while others are under way behind the refused one.
    """
    known = refused.get(header.producer_id)
    if known is not None and (
        known.producer_epoch != header.producer_epoch or _is_at_or_after(header.base_sequence, known.base_sequence)
    ):
        del refused[header.producer_id]


def _is_at_or_after(sequence: int, other: int) -> bool:
    """Whether a sequence number, which wraps around at 2^31, is the other one or comes after it."""
    return (sequence - other) % SEQUENCES < SEQUENCES // 2
