"""Batches behind a refused one get its error, until the producer has sent the refused one again."""

from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import BatchHeader, encode, read_header
from ottla.replication.refused_batches import REFUSED_MAX, RefusedBatches

STORAGE = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
REPLICAS = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "1 in sync")
ORDER = KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap")


def header(sequence: int, *, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return read_header(encode([(None, b"v", (), 1)], **fields), 0)


@pytest.mark.parametrize("refusal", [STORAGE, REPLICAS])
def test_a_batch_behind_a_refused_one_gets_its_error(refusal: KafkaError) -> None:
    refused = RefusedBatches()
    assert refused.explain(header(5), refusal) is refusal
    assert refused.explain(header(6), ORDER) is refusal
    assert refused.explain(header(9), ORDER) is refusal


def test_a_gap_that_no_refusal_explains_stays_out_of_order() -> None:
    # Another producer, another epoch, a batch before the refused one, and a producer without an id.
    refused = RefusedBatches()
    refused.explain(header(5), STORAGE)
    assert refused.explain(header(6, producer_id=8), ORDER) is ORDER
    assert refused.explain(header(6, epoch=1), ORDER) is ORDER
    assert refused.explain(header(4), ORDER) is ORDER
    assert refused.explain(header(6, producer_id=-1), STORAGE) is STORAGE
    assert list(refused) == [7]


def test_a_refusal_is_known_until_the_refused_batch_is_in_the_log() -> None:
    # The retry of a batch before it is answered as a duplicate, while others are under way behind the refused one.
    refused = RefusedBatches()
    refused.explain(header(5), REPLICAS)
    refused.note_append(header(4))
    refused.note_append(header(5, producer_id=8))
    assert refused.explain(header(6), ORDER) is REPLICAS
    assert refused.explain(header(7), REPLICAS) is REPLICAS
    refused.note_append(header(5))
    assert refused.explain(header(6), ORDER) is ORDER, "it is what the log needs next"
    assert refused.explain(header(7), ORDER) is REPLICAS
    for appended in (header(7), header(8), header(0, epoch=1)):
        again = RefusedBatches(refused)
        again.note_append(appended)
        assert not again


def test_sequence_numbers_that_begin_again_are_behind_the_last_ones() -> None:
    refused = RefusedBatches()
    refused.explain(header((1 << 31) - 1), STORAGE)
    assert refused.explain(header(0), ORDER) is STORAGE
    refused.note_append(header(0))
    assert not refused


def test_the_number_of_remembered_producers_is_limited() -> None:
    refused = RefusedBatches()
    for producer_id in range(REFUSED_MAX + 1):
        refused.explain(header(0, producer_id=producer_id), STORAGE)
    assert list(refused) == [REFUSED_MAX]
