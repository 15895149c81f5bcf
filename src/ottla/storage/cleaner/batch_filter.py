"""What is left of a batch after compaction.

- Of the records with one key the last stays; one without a key goes. Records of aborted transactions go.
- A batch keeps its offsets, its codec, its producer and its sequence, whichever of its records are gone.
- A tombstone stays for delete.retention.ms after the first compaction that met it. That compaction notes the time when
  it may go in the batch: the delete horizon, which takes the place of the base timestamp. A marker whose transaction
  has no records any more is treated alike.
- A batch without records goes, unless it is the last of a producer that may go on (its sequence is needed to recognise
  a retry), or the last one of the compacted part (so that the end of the log is never lost). Its header then stays.
- The header of the first batch of each leader epoch stays, too, without its producer. Who copies the log learns from it
  where the epoch began, and can say as a leader where the log of a replica diverges that was away.
"""

from ottla.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    repack,
)
from ottla.records.compression import compress
from ottla.storage.cleaner.kernels import GROWTH_MAX, Kernels
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.order import NO_OFFSET, CompactionOrder
from ottla.storage.cleaner.source import unpack_records
from ottla.storage.cleaner.transactions import TransactionTrace
from ottla.storage.files import Bytes

_TIME_MIN, _TIME_MAX = -(1 << 63), (1 << 63) - 1
_LASTING = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
"""The attributes that a batch without records keeps."""
_NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
_NO_TIMESTAMP = -1


class BatchFilter:
    def __init__(self, kernels: Kernels, order: CompactionOrder, offsets: OffsetMap, trace: TransactionTrace) -> None:
        self._kernels = kernels
        self._order = order
        self._offsets = offsets
        self._trace = trace
        self._up_to = order.up_to
        self._horizon = min(order.now_ms + order.delete_retention_ms, _TIME_MAX)
        self._leader_epoch: int | None = None
        """The leader epoch of the last batch that was filtered."""
        self.records_read = 0
        self.records_written = 0
        self.keyless = 0
        self.deletes_removed_before = 0
        """Every tombstone and marker that was removed was before this offset."""

    def filter(self, header: BatchHeader, batch: memoryview) -> tuple[BatchHeader, Bytes] | None:
        """Return what to write for a batch: the same batch if nothing changes, None if nothing is left of it."""
        self.records_read += header.record_count
        if header.attributes & CONTROL:
            rest = self._filter_marker(header, batch)
        else:
            aborted = self._trace.follow_data(header)
            rest = None if aborted or not header.record_count else self._filter_records(header, batch)
        begins_epoch = header.leader_epoch != self._leader_epoch
        self._leader_epoch = header.leader_epoch
        if rest is None and self._is_needed(header):
            rest = _make_empty(header, header.attributes & _LASTING, header.max_timestamp)
        elif rest is None and begins_epoch:
            rest = _make_empty(header._replace(**_NO_PRODUCER), header.attributes & LOG_APPEND_TIME, _NO_TIMESTAMP)
        if rest is not None:
            self.records_written += rest[0].record_count
        return rest

    def _is_needed(self, header: BatchHeader) -> bool:
        if header.next_offset == self._up_to:
            return True
        last = self._order.producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset == NO_OFFSET:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.last_offset

    def _filter_marker(self, header: BatchHeader, batch: memoryview) -> tuple[BatchHeader, Bytes] | None:
        if not self._trace.follow_marker(header, batch):
            return header, batch
        if not header.record_count or self._is_over(header):
            return None
        if header.has_delete_horizon:
            return header, batch
        kept = self._kernels.room(header.record_count)
        kept[:] = self._kernels.view(b"\1" * header.record_count)
        return self._pack(header, unpack_records(header, batch), kept, header.record_count, header.max_timestamp, True)

    def _is_over(self, header: BatchHeader) -> bool:
        """Whether delete.retention.ms is over for what the batch deletes, and every replica has it. Then it goes."""
        order = self._order
        is_old = header.has_delete_horizon and header.base_timestamp <= order.now_ms
        if not is_old or header.last_offset >= order.keep_deletes_from:
            return False
        self.deletes_removed_before = max(self.deletes_removed_before, header.next_offset)
        return True

    def _filter_records(self, header: BatchHeader, batch: memoryview) -> tuple[BatchHeader, Bytes] | None:
        records = unpack_records(header, batch)
        kept = self._kernels.room(header.record_count)
        staying, tombstones, keyless, earliest, newest = self._offsets.judge(
            self._kernels.view(records),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            not self._is_over(header),
            kept,
        )
        self.keyless += keyless
        if not staying:
            return None
        # A timestamp near the minimum of 64 bits cannot be stored as a difference to the horizon.
        needs_horizon = tombstones > 0 and not header.has_delete_horizon and earliest > _TIME_MIN + self._horizon
        if staying == header.record_count and not needs_horizon:
            return header, batch
        max_timestamp = header.max_timestamp if header.log_append_time else newest
        return self._pack(header, records, kept, staying, max_timestamp, needs_horizon)

    def _pack(
        self, header: BatchHeader, records: Bytes, kept: Bytes, staying: int, max_timestamp: int, needs_horizon: bool
    ) -> tuple[BatchHeader, Bytes]:
        """Build a batch of the records that stay, in the codec of the old one."""
        base_timestamp, attributes = header.base_timestamp, header.attributes
        if needs_horizon:
            base_timestamp, attributes = self._horizon, attributes | DELETE_HORIZON
        output = self._kernels.room(len(records) + GROWTH_MAX * header.record_count)
        shift = header.base_timestamp - base_timestamp
        size = self._kernels.copy(self._kernels.view(records), header.record_count, kept, shift, output)
        fresh = header._replace(base_timestamp=base_timestamp, attributes=attributes, record_count=staying)
        with memoryview(output) as view:
            packed = repack(fresh, header.codec, compress(header.codec, view[:size]), max_timestamp)
        return read_header(packed), packed


def _make_empty(header: BatchHeader, attributes: int, max_timestamp: int) -> tuple[BatchHeader, Bytes]:
    fresh = header._replace(attributes=attributes, base_timestamp=_NO_TIMESTAMP, record_count=0)
    packed = repack(fresh, 0, b"", max_timestamp)
    return read_header(packed), packed
