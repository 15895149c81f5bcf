"""One compaction: index the keys of the dirty part, then write the segments anew, several small ones into one."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ottla.records.batch import CONTROL, BatchHeader
from ottla.storage import names
from ottla.storage.cleaner.batch_filter import BatchFilter
from ottla.storage.cleaner.kernels import Kernels, compiled_kernels, python_kernels
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.order import BytesProcessed, Cleaned, CompactionOrder, Report, Source, Summary
from ottla.storage.cleaner.source import read_batches, unpack_records
from ottla.storage.cleaner.target import Target
from ottla.storage.cleaner.transactions import TransactionTrace
from ottla.storage.files import Disk
from ottla.storage.index import RELATIVE_OFFSET_MAX

Group = Sequence[Source]


def compact(disk: Disk, order: CompactionOrder) -> Iterator[Report]:
    """Carry out an order. The work is done while the caller asks for the next report.

    After a `Cleaned` report the segments that it names are not read again: the caller may have replaced them.
    """
    compaction = CompactionRun(disk, order, choose_kernels(order))
    yield from compaction.run()


def choose_kernels(order: CompactionOrder) -> Kernels:
    if order.compiled:
        with suppress(ImportError):  # numba is an extra
            return compiled_kernels()
    return python_kernels()


class CompactionRun:
    def __init__(self, disk: Disk, order: CompactionOrder, kernels: Kernels) -> None:
        self._disk = disk
        self._order = order
        self._kernels = kernels
        self._offsets = OffsetMap(kernels, order)
        self._trace = TransactionTrace(order.aborted)
        self._filter = BatchFilter(kernels, order, self._offsets, self._trace)
        self._report_bytes = order.report_bytes
        self._unreported = 0
        self._bytes_read = self._bytes_written = 0

    def run(self) -> Iterator[Report]:
        yield from self._index()
        dirty = [source for source in self._order.sources if source.base_offset < self._offsets.end_offset]
        for group in group_sources(self._disk, self._order, dirty):
            yield from self._rewrite(group)
        yield BytesProcessed(self._take_unreported())
        yield Summary(
            self._offsets.end_offset,
            self._bytes_read,
            self._bytes_written,
            self._filter.records_read,
            self._filter.records_written,
            self._filter.keyless,
            self._offsets.used,
        )

    def _index(self) -> Iterator[Report]:
        """Enter the keys of the dirty part into the map, except those of aborted transactions."""
        order, offsets = self._order, self._offsets
        trace = TransactionTrace(entry for entry in order.aborted if entry.last_offset >= order.dirty_from)
        for source in order.sources:
            if source.end_offset <= order.dirty_from:
                continue
            for header, batch in read_batches(self._disk, order.directory, source, order.read_bytes):
                if header.last_offset >= order.dirty_from:
                    if not self._index_batch(header, batch, trace):
                        return
                    offsets.end_offset = header.next_offset
                if self._is_report_due(len(batch)):
                    yield BytesProcessed(self._take_unreported())
            offsets.end_offset = source.end_offset

    def _index_batch(self, header: BatchHeader, batch: memoryview, trace: TransactionTrace) -> bool:
        """Enter the keys of one batch. Returns whether there was room for all of them."""
        if header.attributes & CONTROL:
            trace.follow_marker(header, batch)
            return True
        if trace.follow_data(header):
            return True
        records = self._kernels.view(unpack_records(header, batch))
        return self._offsets.index(records, header.record_count, header.base_offset)

    def _rewrite(self, group: Group) -> Iterator[Report]:
        order = self._order
        target = Target(self._disk, order.directory, group[0].base_offset, order.index_interval_bytes)
        try:
            for source in group:
                for header, batch in read_batches(self._disk, order.directory, source, order.read_bytes):
                    rest = self._filter.filter(header, batch)
                    size = len(batch)
                    self._bytes_read += size
                    if rest is not None:
                        target.append(*rest)
                        size += len(rest[1])
                    if self._is_report_due(size):
                        yield BytesProcessed(self._take_unreported())
            target.finish(self._trace.take_kept())
        except BaseException:
            target.discard()
            raise
        self._bytes_written += target.size
        replaced = [source.base_offset for source in group]
        yield Cleaned(group[0].base_offset, replaced, self._filter.deletes_removed_before)

    def _is_report_due(self, size: int) -> bool:
        """Count bytes that were read or written. Returns whether it is time for a report."""
        self._unreported += size
        return self._unreported >= self._report_bytes

    def _take_unreported(self) -> int:
        size, self._unreported = self._unreported, 0
        return size


def group_sources(disk: Disk, order: CompactionOrder, sources: Sequence[Source]) -> list[list[Source]]:
    """Group neighbouring segments that together fit into one, in bytes, index size and range of offsets."""
    found: list[list[Source]] = []
    total = offset_index = time_index = 0
    for source in sources:
        of_offsets = _measure(disk, order, source, names.OFFSET_INDEX)
        of_times = _measure(disk, order, source, names.TIME_INDEX)
        fits = (
            found
            and total + source.size <= order.segment_bytes
            and offset_index + of_offsets <= order.segment_index_bytes
            and time_index + of_times <= order.segment_index_bytes
            and (not source.size or source.end_offset - 1 - found[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if not fits:
            found.append([])
            total = offset_index = time_index = 0
        found[-1].append(source)
        total, offset_index, time_index = total + source.size, offset_index + of_offsets, time_index + of_times
    return found


def _measure(disk: Disk, order: CompactionOrder, source: Source, suffix: str) -> int:
    try:
        return disk.size(names.path(order.directory, source.base_offset, suffix))
    except FileNotFoundError:
        return 0
