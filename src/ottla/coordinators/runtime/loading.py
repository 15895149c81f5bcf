"""Reading a coordinator's records back out of its log: bytes in, what is to be replayed out. Runs in a thread."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ottla.coordinators.formats import RecordFormat
from ottla.coordinators.machine import Machine, Producer, StoredRecord
from ottla.records import batch
from ottla.records.batch import COMMIT, BatchHeader
from ottla.storage.files import FileSlice
from ottla.wire.malformed import Malformed

logger = logging.getLogger(__name__)


class StoredBatch(NamedTuple):
    """What one batch of the log does to a machine."""

    next_offset: int
    producer: Producer | None
    committed: bool | None
    """For a marker: how it ends the producer's transaction. None: the batch holds records."""
    records: Sequence[tuple[StoredRecord, int]]
    """Each with the time it was written."""

    def replay_into(self, machine: Machine) -> None:
        if self.committed is not None:
            assert self.producer is not None
            machine.end_transaction(self.producer, self.committed)
            return
        for record, written_ms in self.records:
            machine.replay(record, written_ms, self.producer)


def read_batches(found: FileSlice, form: RecordFormat) -> list[StoredBatch]:
    """Every whole batch of the slice. CorruptBatch if one is damaged."""
    data = found.read()
    batches = []
    for position, header in batch.headers(data):
        batch.check(data, position)
        batches.append(_read_batch(data, position, header, form))
    return batches


def _read_batch(data: bytes, position: int, header: BatchHeader, form: RecordFormat) -> StoredBatch:
    producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
    if header.is_control:
        if producer is None or not header.record_count:
            return StoredBatch(header.next_offset, None, None, ())
        return StoredBatch(header.next_offset, producer, batch.control_type(data, position).type == COMMIT, ())
    records = []
    for offset, written_ms, key, value, _ in batch.decode(data, position):
        try:
            record = form.decode(key, value)
        except Malformed as error:
            # Kafka would not start this coordinator any more. The record stays in the log, for who can read it.
            logger.error("offset %d is passed over: %s", offset, error)
            continue
        if record is not None:
            records.append((record, written_ms))
    return StoredBatch(header.next_offset, producer, None, records)
