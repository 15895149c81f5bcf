"""Offline check of one partition's directory: every checksum, and everything derived from the records against them.

Nothing here writes, except `repair`. It removes derived files that are wrong and lets recovery make them anew, from
records that are all taken for flushed: a torn end is cut off, sound records are never touched, and what was damaged in
the middle stays for a person to decide about.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.batch import ABORT, BatchHeader, CorruptBatch
from ottla.storage import names
from ottla.storage import producer_snapshot as snapshots
from ottla.storage import transaction_index as transactions
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.files import Disk, File
from ottla.storage.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, CorruptIndex, OffsetIndex, TimeIndex
from ottla.storage.log import Log
from ottla.storage.partition_metadata import NO_TOPIC_ID, read_topic_id
from ottla.storage.producer_restore import read_marker
from ottla.storage.scan import next_sound_batch, scan
from ottla.storage.settings import LogSettings
from ottla.storage.transaction_index import AbortedTransaction, TransactionIndex


class Problem(NamedTuple):
    path: str
    reason: str
    repairable: bool


@dataclass(slots=True)
class PartitionReport:
    """What was found in a partition's directory. `end_offset` is behind the last sound record."""

    directory: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    first_offset: int = 0
    end_offset: int = 0
    problems: list[Problem] = field(default_factory=list)
    derived: dict[str, None] = field(default_factory=dict)
    """Files that are wrong and can be made from the records."""
    aborted: dict[str, list[AbortedTransaction]] = field(default_factory=dict)
    """What the transaction indexes that are wrong have to say. Recovery reads them, and would not make them anew."""

    def lost(self, path: str, reason: str) -> None:
        self.problems.append(Problem(path, reason, repairable=False))

    def torn(self, path: str, reason: str) -> None:
        self.problems.append(Problem(path, reason, repairable=True))

    def wrong(self, path: str, reason: str) -> None:
        """Of a derived file the first thing that is wrong says enough."""
        if path not in self.derived:
            self.derived[path] = None
            self.problems.append(Problem(path, reason, repairable=True))


def without_padding(data: bytes, entry_size: int) -> bytes:
    """Apache Kafka keeps the index of a segment that it writes to at its largest size, filled up with zeros."""
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // entry_size) * entry_size]


def verify(disk: Disk, directory: str, *, flushed_to: int) -> PartitionReport:
    """Read all of it. Below `flushed_to` the leader epochs must be on record; above, recovery would write them down."""
    report = PartitionReport(directory)
    found = disk.list(directory)
    if read_topic_id(disk, directory) == NO_TOPIC_ID:
        report.lost(f"{directory}/{names.METADATA}", "there is no topic id in it")
    epochs = _epochs(disk, report, found)
    bases = names.offsets_with(found, names.LOG)
    report.segments = len(bases)
    report.first_offset = report.end_offset = bases[0] if bases else 0
    walk = _Walk(disk, report, epochs, flushed_to)
    for number, base in enumerate(bases):
        walk.segment(base, is_last=number + 1 == len(bases), found=found)
    for offset in names.offsets_with(found, names.SNAPSHOT):
        _check_snapshot(disk, report, offset)
    return report


def repair(disk: Disk, report: PartitionReport, log_start_offset: int, now_ms: int) -> None:
    """Everything that can be repaired is, and durable, when this returns."""
    for path in report.derived:
        if disk.exists(path):
            disk.unlink(path)
    for path, entries in report.aborted.items():
        TransactionIndex(disk, path).replace(entries)
    log = Log.open(
        disk,
        report.directory,
        LogSettings(compacted=True),  # a gap between segments may be compaction's: never cut there
        clean=False,
        recovery_point=report.end_offset,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
    )
    log.close()


def _epochs(disk: Disk, report: PartitionReport, found: Sequence[str]) -> LeaderEpochs | None:
    if names.EPOCHS not in found:
        return None
    path = f"{report.directory}/{names.EPOCHS}"
    try:
        return LeaderEpochs.load(disk, path)
    except ValueError as error:
        report.wrong(path, str(error).removeprefix(f"{path}: "))
        return None


def _check_snapshot(disk: Disk, report: PartitionReport, offset: int) -> None:
    path = names.path(report.directory, offset, names.SNAPSHOT)
    try:
        producers = snapshots.decode(disk.read(path))
    except snapshots.CorruptSnapshot as error:
        report.wrong(path, str(error))
        return
    if offset > report.end_offset:
        report.wrong(path, f"the log ends at {report.end_offset}")
    for producer in producers:
        if producer.batches and producer.batches[-1].last_offset >= offset:
            report.wrong(path, f"producer {producer.producer_id} is said to have written at or after {offset}")


class _Batches:
    """The sound batches of a segment, as columns."""

    def __init__(self) -> None:
        self.positions = array("q")
        self.firsts = array("q")
        self.lasts = array("q")
        self.largest_so_far = array("q")

    def add(self, position: int, header: BatchHeader) -> None:
        before = self.largest_so_far[-1] if self.largest_so_far else -1
        self.positions.append(position)
        self.firsts.append(header.base_offset)
        self.lasts.append(header.last_offset)
        self.largest_so_far.append(max(before, header.max_timestamp))

    def at(self, position: int) -> int | None:
        number = bisect_left(self.positions, position)
        return number if number < len(self.positions) and self.positions[number] == position else None

    def holding(self, offset: int) -> int:
        """The number of the last batch that begins at or before the offset; -1 if none does."""
        return bisect_right(self.firsts, offset) - 1


class _Walk:
    """From segment to segment: offsets only grow, and transactions may span several."""

    def __init__(self, disk: Disk, report: PartitionReport, epochs: LeaderEpochs | None, flushed_to: int) -> None:
        self._disk = disk
        self._report = report
        self._epochs = epochs
        self._flushed_to = flushed_to
        self._open: dict[int, int] = {}
        """Where the open transaction of each producer began."""

    def segment(self, base: int, *, is_last: bool, found: Sequence[str]) -> None:
        report = self._report
        path = names.path(report.directory, base, names.LOG)
        if base < report.end_offset:
            report.lost(path, f"it begins at {base}, the segment before it ends at {report.end_offset}")
        batches = _Batches()
        markers: dict[int, int] = {}
        aborted: list[AbortedTransaction] = []
        file = self._disk.open_read(path)
        try:
            report.bytes += file.size
            for position, header in self._sound(file, path, base, is_last):
                batches.add(position, header)
                self._follow_transactions(file, position, header, markers, aborted)
                self._compare_epoch(header)
                report.batches += 1
                report.records += header.record_count
                report.end_offset = header.next_offset
        finally:
            file.close()
        self._compare_indexes(base, batches, found, is_last=is_last)
        self._compare_transactions(base, markers, aborted, found)

    def _sound(self, file: File, path: str, base: int, is_last: bool) -> Iterator[tuple[int, BatchHeader]]:
        """The segment's batches. What lies between them and is none is a problem, and stepped over."""
        begin, size, expected = 0, file.size, base
        while begin < size:
            position, reason = begin, ""
            try:
                for position, header in scan(file, begin, size, checked=True):
                    if header.base_offset < expected or header.last_offset_delta < 0:
                        reason = f"offset {header.base_offset} where {expected} is next"
                        break
                    yield position, header
                    expected = header.next_offset
                    position += header.size
            except CorruptBatch as error:
                reason = str(error)
            if not reason:
                return
            further = next_sound_batch(file, position + 1, size, expected)
            if further is None and is_last:
                self._report.torn(path, f"torn at byte {position} of {size}, after offset {expected - 1}: {reason}")
                return
            begin = size if further is None else further
            self._report.lost(path, f"bytes {position} to {begin} are damaged, after offset {expected - 1}: {reason}")

    def _compare_epoch(self, header: BatchHeader) -> None:
        if self._epochs is None or header.leader_epoch < 0 or header.base_offset >= self._flushed_to:
            return
        known = self._epochs.epoch_at(header.base_offset)
        if known != header.leader_epoch:
            path = f"{self._report.directory}/{names.EPOCHS}"
            reason = f"offset {header.base_offset} is of epoch {header.leader_epoch}, the file says {known}"
            self._report.wrong(path, reason)

    def _follow_transactions(
        self, file: File, position: int, header: BatchHeader, markers: dict[int, int], aborted: list[AbortedTransaction]
    ) -> None:
        if header.producer_id < 0 or not header.is_transactional:
            return
        marker = read_marker(file, position, header)
        if marker is None:
            self._open.setdefault(header.producer_id, header.base_offset)
            return
        markers[header.base_offset] = header.producer_id
        began = self._open.pop(header.producer_id, None)
        if marker.type == ABORT and began is not None:
            stable = min(self._open.values(), default=header.base_offset + 1)
            aborted.append(AbortedTransaction(header.producer_id, began, header.base_offset, stable))

    def _compare_indexes(self, base: int, batches: _Batches, found: Sequence[str], *, is_last: bool) -> None:
        offsets = names.path(self._report.directory, base, names.OFFSET_INDEX)
        times = names.path(self._report.directory, base, names.TIME_INDEX)
        try:
            if offsets.rpartition("/")[2] in found:
                problem = _offset_index_problem(self._disk.read(offsets), base, batches)
                if problem:
                    self._report.wrong(offsets, problem)
        except CorruptIndex as error:
            self._report.wrong(offsets, str(error))
        try:
            if times.rpartition("/")[2] in found:
                problem = _time_index_problem(self._disk.read(times), base, batches, sealed=not is_last)
                if problem:
                    self._report.wrong(times, problem)
        except CorruptIndex as error:
            self._report.wrong(times, str(error))

    def _compare_transactions(
        self, base: int, markers: dict[int, int], aborted: list[AbortedTransaction], found: Sequence[str]
    ) -> None:
        path = names.path(self._report.directory, base, names.TRANSACTION_INDEX)
        entries: list[AbortedTransaction] = []
        problem = ""
        if path.rpartition("/")[2] in found:
            try:
                entries = transactions.decode(self._disk.read(path))
            except CorruptIndex as error:
                problem = str(error)
        # Of a compacted log the index may know more than the records: a transaction stays there until all of it went.
        right = {entry.last_offset: entry for entry in entries if markers.get(entry.last_offset) == entry.producer_id}
        if len(right) < len(entries):
            stranger = next(entry for entry in entries if entry.last_offset not in right)
            problem = f"producer {stranger.producer_id} has no marker at offset {stranger.last_offset}"
        missing = [entry for entry in aborted if entry.last_offset not in right]
        if missing:
            problem = problem or f"the transaction aborted at offset {missing[0].last_offset} is not in it"
        if problem:
            self._report.wrong(path, problem)
            right.update((entry.last_offset, entry) for entry in missing)
            self._report.aborted[path] = [right[offset] for offset in sorted(right)]


def _offset_index_problem(data: bytes, base: int, batches: _Batches) -> str:
    index = OffsetIndex.decode(without_padding(data, OFFSET_ENTRY_SIZE))
    before = (-1, -1)
    for relative, position in zip(index.offsets, index.positions, strict=True):
        number = batches.at(position)
        if (relative, position) <= before or position <= before[1]:
            return f"offset {base + relative} at byte {position} does not follow {before}"
        if number is None or base + relative < batches.firsts[number]:
            return f"offset {base + relative} is not in a batch at byte {position}"
        if base + relative > batches.lasts[-1]:
            return f"offset {base + relative} is after the segment's last"
        before = (relative, position)
    return ""


def _time_index_problem(data: bytes, base: int, batches: _Batches, *, sealed: bool) -> str:
    index = TimeIndex.decode(without_padding(data, TIME_ENTRY_SIZE))
    for timestamp, relative in zip(index.timestamps, index.offsets, strict=True):
        number = batches.holding(base + relative)
        if number < 0 or base + relative > batches.lasts[-1]:
            return f"offset {base + relative} is not in the segment"
        earlier = batches.largest_so_far[number - 1] if number else -1
        if not earlier <= timestamp <= batches.largest_so_far[number]:
            return f"{timestamp} is not the largest timestamp up to offset {base + relative}"
    if sealed and index.timestamps and index.timestamps[-1] < batches.largest_so_far[-1]:
        return f"it ends with {index.timestamps[-1]}, the largest timestamp is {batches.largest_so_far[-1]}"
    return ""
