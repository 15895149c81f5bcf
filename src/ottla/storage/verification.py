"""Offline check of one partition's directory: every checksum, and every derived file against the records.

Nothing here writes, except `repair`. It deletes derived files that are wrong and lets recovery rebuild them, with all
sound records taken for flushed: a torn end is cut off, sound records are never touched, and damage in the middle stays
for a person to decide about.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.records.batch import ABORT, BatchHeader, CorruptBatch
from ottla.storage import names, partition_metadata
from ottla.storage import producer_snapshot as snapshots
from ottla.storage import transaction_index as transactions
from ottla.storage.epoch_verification import EpochHistory
from ottla.storage.files import Disk, File
from ottla.storage.index import RELATIVE_OFFSET_MAX, CorruptIndex
from ottla.storage.index_verification import (
    Batches,
    find_offset_index_problem,
    find_time_index_problem,
    find_transaction_index_problem,
    repair_transactions,
)
from ottla.storage.opening import open_log
from ottla.storage.partition_metadata import NO_TOPIC_ID, read_topic_id
from ottla.storage.producer_restore import read_marker
from ottla.storage.scan import find_sound_batch, scan
from ottla.storage.settings import LogSettings
from ottla.storage.transaction_index import AbortedTransaction, TransactionIndex


class Problem(NamedTuple):
    path: str
    reason: str
    repairable: bool


class Notice(NamedTuple):
    """Something that may be damage or may be intended; only a person can tell."""

    path: str
    reason: str


class Trust(NamedTuple):
    """What the checkpoints and marks of the data directory say about a partition."""

    flushed_to: int = 0
    log_start: int = 0
    closed: bool = False
    """Whether the broker that wrote it shut down cleanly: then everything is flushed, indexes included."""
    compacted: bool = False
    """Whether it may have been compacted: that leaves gaps between offsets."""


@dataclass(slots=True)
class PartitionReport:
    """What was found in a partition's directory. `end_offset` is the offset after the last sound record."""

    directory: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    first_offset: int = 0
    end_offset: int = 0
    problems: list[Problem] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    derived: dict[str, None] = field(default_factory=dict)
    """Files that are wrong and can be rebuilt from the records."""
    aborted: dict[str, list[AbortedTransaction]] = field(default_factory=dict)
    """The right content of transaction indexes that are wrong. Recovery reads them and does not rebuild all of them."""
    end_is_damaged: bool = False
    """Whether the log's last, flushed batches are damaged: a repair would cut them off, so there is none."""

    def add_loss(self, path: str, reason: str) -> None:
        self.problems.append(Problem(path, reason, repairable=False))

    def add_torn_end(self, path: str, reason: str) -> None:
        self.problems.append(Problem(path, reason, repairable=True))

    def add_wrong_file(self, path: str, reason: str) -> None:
        """Add the first problem of a derived file."""
        if path not in self.derived:
            self.derived[path] = None
            self.problems.append(Problem(path, reason, repairable=True))


def verify(disk: Disk, directory: str, trust: Trust) -> PartitionReport:
    """Read the whole directory and report what is wrong."""
    report = PartitionReport(directory)
    found = disk.list(directory)
    _check_metadata(disk, report)
    bases = names.offsets_with(found, names.LOG)
    report.segments = len(bases)
    report.first_offset = report.end_offset = bases[0] if bases else 0
    walk = _Walk(disk, report, trust)
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        walk.check_segment(base, following, found)
    walk.finish()
    for offset in names.offsets_with(found, names.SNAPSHOT):
        _check_snapshot(disk, report, offset)
    return report


def repair(disk: Disk, report: PartitionReport, log_start_offset: int, now_ms: int) -> None:
    """Repair everything that can be repaired, durably."""
    assert not report.end_is_damaged
    for path in report.derived:
        if disk.exists(path):
            disk.unlink(path)
    for path, entries in report.aborted.items():
        TransactionIndex(disk, path).replace(entries)
    log = open_log(
        disk,
        report.directory,
        LogSettings(compacted=True),  # a gap between segments may come from compaction, so never cut there
        clean=False,
        recovery_point=report.end_offset,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
    )
    log.close()


def _check_metadata(disk: Disk, report: PartitionReport) -> None:
    path = f"{report.directory}/{names.METADATA}"
    topic_id = read_topic_id(disk, report.directory)
    if topic_id == NO_TOPIC_ID:
        report.add_loss(path, "there is no topic id in it")
    elif disk.read(path).removesuffix(b"\n") != partition_metadata.encode(topic_id):
        report.add_loss(path, "no broker writes it like this")


def _check_snapshot(disk: Disk, report: PartitionReport, offset: int) -> None:
    path = names.path(report.directory, offset, names.SNAPSHOT)
    try:
        producers = snapshots.decode(disk.read(path))
    except snapshots.CorruptSnapshot as error:
        report.add_wrong_file(path, str(error))
        return
    if offset > report.end_offset:
        report.add_wrong_file(path, f"the log ends at {report.end_offset}")
    for producer in producers:
        if producer.batches and producer.batches[-1].last_offset >= offset:
            report.add_wrong_file(path, f"its producer {producer.producer_id} has a batch at or after {offset}")


class _Walk:
    """Checks segment after segment: offsets and epochs only grow, and transactions may span several segments."""

    def __init__(self, disk: Disk, report: PartitionReport, trust: Trust) -> None:
        self._disk = disk
        self._report = report
        self._trust = trust
        self._epochs_path = f"{report.directory}/{names.EPOCHS}"
        self._epochs = EpochHistory(disk, self._epochs_path, flushed_to=trust.flushed_to, log_start=trust.log_start)
        self._log_path = ""
        self._open: dict[int, int] = {}
        """Where the open transaction of each producer began."""
        self._complete = report.first_offset == 0
        """Whether no record is missing so far."""
        self._damaged = False
        """Whether the bytes before the next batch are damaged: then a gap in the offsets is expected."""
        self._gaps: list[tuple[str, int, int]] = []
        self._thinned = trust.compacted

    def check_segment(self, base: int, following: int | None, found: Sequence[str]) -> None:
        report = self._report
        path = self._log_path = names.path(report.directory, base, names.LOG)
        self._expect(base)
        batches = Batches()
        markers: dict[int, int] = {}
        aborted: list[AbortedTransaction] = []
        file = self._disk.open_read(path)
        try:
            report.bytes += file.size
            for position, header in self._iterate_in_order(file, base, following):
                batches.add(position, header)
                self._follow_transactions(file, position, header, markers, aborted)
                self._epochs.follow(header)
                report.batches += 1
                report.records += header.record_count
        finally:
            file.close()
        sealed = following is not None or self._trust.closed
        self._compare_indexes(base, batches, found, sealed=sealed)
        self._compare_transactions(base, markers, aborted, found)

    def finish(self) -> None:
        self._report.end_is_damaged = self._damaged
        self._epochs.finish(self._report.end_offset)
        if self._epochs.problem:
            self._report.add_wrong_file(self._epochs_path, self._epochs.problem)
        if self._epochs.went_back:
            self._report.add_loss(self._log_path, self._epochs.went_back)
        start = max(self._trust.log_start, self._report.first_offset)
        first = self._epochs.first_start
        if self._trust.closed and first is not None and first < start < self._report.end_offset:
            reason = f"the first epoch begins at {first}, the log at {start}: records before that are not served"
            self._report.notices.append(Notice(self._epochs_path, reason))
        if self._gaps and not self._thinned:
            path, first, following = self._gaps[0]
            others = f", nor those in {len(self._gaps) - 1} other places" if len(self._gaps) > 1 else ""
            reason = f"offsets {first} to {following - 1} are not there{others}, and nothing says that it was compacted"
            self._report.notices.append(Notice(path, reason))

    def _expect(self, offset: int) -> None:
        """Take note that the next batch or segment begins at `offset`, and of the gap before it."""
        if offset > self._report.end_offset:
            self._complete = False
            if not self._damaged:
                self._gaps.append((self._log_path, self._report.end_offset, offset))
        self._damaged = False
        self._report.end_offset = offset

    def _iterate_in_order(self, file: File, base: int, following: int | None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the batches whose offsets fit between those of their neighbours: the checksum does not cover offsets.

        A batch is held back until the next one is seen. If the two overlap, and there is a gap before the first of
        them, then the first one is wrong.
        """
        limit = following if following is not None else base + RELATIVE_OFFSET_MAX + 1
        held: tuple[int, BatchHeader] | None = None
        for found in self._iterate_sound(file, is_last=following is None):
            offset = found[1].base_offset if found is not None else -1
            expected = self._report.end_offset
            if held is not None and expected <= offset < held[1].next_offset and held[1].base_offset > expected:
                self._note_misplaced(*held, f"and offset {offset} after it")
                held = None
            if held is not None:
                yield self._accept(*held)
            expected, held = self._report.end_offset, None
            if found is None:
                self._damaged = True
            elif expected <= offset <= found[1].last_offset < limit:
                held = found
            else:
                self._note_misplaced(*found, f"where {expected} is next")
        if held is not None:
            yield self._accept(*held)

    def _accept(self, position: int, header: BatchHeader) -> tuple[int, BatchHeader]:
        self._expect(header.base_offset)
        self._report.end_offset = header.next_offset
        self._thinned |= header.record_count != header.last_offset_delta + 1
        return position, header

    def _note_misplaced(self, position: int, header: BatchHeader, where: str) -> None:
        self._report.add_loss(self._log_path, f"offset {header.base_offset} at byte {position}, {where}")
        self._damaged = True

    def _iterate_sound(self, file: File, *, is_last: bool) -> Iterator[tuple[int, BatchHeader] | None]:
        """Yield the segment's sound batches, and None for damaged bytes between them, which are reported."""
        begin, size, next_offset = 0, file.size, self._report.end_offset
        while begin < size:
            position = begin
            try:
                for position, header in scan(file, begin, size, checked=True):
                    yield position, header
                    next_offset = header.next_offset
                    position += header.size
                return
            except CorruptBatch as error:
                reason = str(error)
            further = find_sound_batch(file, position + 1, size, self._report.end_offset)
            if further is None and is_last and next_offset >= self._trust.flushed_to:
                reason = f"torn at byte {position} of {size}, after offset {next_offset - 1}: {reason}"
                self._report.add_torn_end(self._log_path, reason)
                return
            begin = size if further is None else further
            reason = f"bytes {position} to {begin} are damaged, after offset {next_offset - 1}: {reason}"
            self._report.add_loss(self._log_path, reason)
            yield None

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

    def _compare_indexes(self, base: int, batches: Batches, found: Sequence[str], *, sealed: bool) -> None:
        offsets = names.path(self._report.directory, base, names.OFFSET_INDEX)
        times = names.path(self._report.directory, base, names.TIME_INDEX)
        problems: dict[str, str] = {}
        if offsets.rpartition("/")[2] in found:
            problems[offsets] = find_offset_index_problem(self._disk.read(offsets), base, batches)
        if times.rpartition("/")[2] in found:
            problems[times] = find_time_index_problem(self._disk.read(times), base, batches, sealed=sealed)
        for path, problem in problems.items():
            if problem:
                self._report.add_wrong_file(path, problem)

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
        problem = problem or find_transaction_index_problem(entries, aborted, markers, complete=self._complete)
        if problem:
            self._report.add_wrong_file(path, problem)
            believed = [] if self._complete else entries
            self._report.aborted[path] = repair_transactions(believed, aborted, markers)
