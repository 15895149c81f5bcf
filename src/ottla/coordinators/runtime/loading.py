"""Decodes a coordinator's log into the records and markers that are to be replayed. Runs in a thread."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ottla.coordinators.formats import RecordFormat
from ottla.coordinators.machine import Machine, ProducerIdentity, StoredRecord
from ottla.records import batch
from ottla.records.batch import COMMIT, BatchHeader
from ottla.storage.files import FileSlice
from ottla.wire.malformed import Malformed

logger = logging.getLogger(__name__)


class StoredBatch(NamedTuple):
    """One decoded batch of the log."""

    next_offset: int
    producer: ProducerIdentity | None
    committed: bool | None
    """Whether a marker commits the producer's transaction. None: the batch holds records, or nothing."""
    records: Sequence[tuple[StoredRecord, int]]
    """Each record with the time at which it was written."""

    def replay_into(self, machine: Machine) -> None:
        if self.committed is not None:
            assert self.producer is not None
            machine.end_transaction(self.producer, self.committed)
            return
        for record, written_ms in self.records:
            machine.replay(record, written_ms, self.producer)


def read_batches(found: FileSlice, form: RecordFormat) -> list[StoredBatch]:
    """Decode every whole batch of the slice. CorruptBatch if one is damaged."""
    data = found.read()
    batches = []
    for position, header in batch.headers(data):
        batch.check(data, position)
        batches.append(_read_batch(data, position, header, form))
    return batches


def _read_batch(data: bytes, position: int, header: BatchHeader, form: RecordFormat) -> StoredBatch:
    producer = ProducerIdentity(header.producer_id, header.producer_epoch) if header.is_transactional else None
    if header.is_control:
        if producer is None or not header.record_count:
            return StoredBatch(header.next_offset, None, None, ())
        return StoredBatch(header.next_offset, producer, batch.control_type(data, position).type == COMMIT, ())
    records = []
    for offset, written_ms, key, value, _ in batch.decode(data, position):
        try:
            record = form.decode(key, value)
        except Malformed as error:
            # Kafka would not load this coordinator at all. The record stays in the log, for a release that can read it.
            logger.error("the record at offset %d of a coordinator's log is skipped: %s", offset, error)
            continue
        if record is not None:
            records.append((record, written_ms))
    return StoredBatch(header.next_offset, producer, None, records)
