"""Opening a log: after a clean close in a few reads, after a crash by reading what may not have reached the disk.

Below the recovery point everything was flushed; at and above it, anything may be missing, torn or zero. So the segment
with the recovery point and all later ones are read with every checksum, and their indexes, aborted transactions, epochs
and producer snapshots are rebuilt. The log ends before the first batch that is not sound; whatever follows is removed,
even if it is whole.

A batch below the recovery point that is not sound was flushed and damaged later. It is not cut off, because sound
batches follow it: recovery steps over it, and reading it is an error.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable

from ottla.records.batch import BatchHeader, CorruptBatch
from ottla.storage import damage_record, leftovers, names
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.files import Disk, File
from ottla.storage.flush import sync
from ottla.storage.index import RELATIVE_OFFSET_MAX, CorruptIndex, IndexCache
from ottla.storage.producer_restore import read_marker, restore_producers, write_snapshot
from ottla.storage.producer_state import ProducerStates
from ottla.storage.removed_deletes import RemovedDeletes
from ottla.storage.scan import Damage, find_sound_batch, scan
from ottla.storage.segment import Segment
from ottla.storage.settings import LogSettings
from ottla.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

ProgressCallback = Callable[[int, int], None]
"""Told how many bytes of a log have been read again, and how many there are to read."""

PROGRESS_BYTES = 1 << 20
"""How much is read between two such reports. A report per batch would cost more than reading the batch."""

OFFSET_MAX = 2**63 - 1


class Recovery:
    """Opens one log. After `run` its attributes are the state that the log starts with."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        settings: LogSettings,
        now_ms: int,
        cache: IndexCache,
        *,
        is_new: bool = False,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.now_ms = now_ms
        self.cache = cache
        found = [] if is_new else leftovers.settle_leftovers(disk, directory)
        self._names = frozenset(found)
        self.segments = [self._open_segment(base) for base in names.offsets_with(found, names.LOG)]
        for segment in self.segments:
            segment.is_suspect = not self._names.issuperset(segment.index_names)
        self.snapshots = names.offsets_with(found, names.SNAPSHOT)
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs(disk, f"{directory}/{names.EPOCHS}")
        self.removed_deletes = RemovedDeletes(disk, directory)
        self.end_offset = 0
        self.recovery_point = 0
        self.log_start_offset = 0
        self.clean = False
        self.unsynced = True
        """Whether names in the directory may not have reached the disk."""
        self._progress: ProgressCallback | None = None
        self._done = self._total = self._reported = 0
        self._has_gaps = False
        self._compacted_to = OFFSET_MAX
        self._begun_here = False
        self._lost_nothing = False
        self._flushed_holes_before = 0
        """Offsets before this one may be missing, as the file of the removed deletes says. The others are flushed."""

    def run(
        self,
        *,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        progress: ProgressCallback | None,
        compacted_to: int = OFFSET_MAX,
        begun_here: bool = False,
        lost_nothing: bool = False,
    ) -> "Recovery":
        self._progress = progress
        self._compacted_to = compacted_to
        self._begun_here = begun_here
        self._lost_nothing = lost_nothing
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self._drop_before(log_start_offset)
        known = names.DAMAGE not in self._names or self._recall_damage()
        knows_removed = names.REMOVED_DELETES not in self._names or self._load_removed_deletes()
        self._flushed_holes_before = self.removed_deletes.before
        if not self.segments:
            self.end_offset = self.recovery_point = max(log_start_offset, 0)
            self._begin(self.end_offset)
        elif clean and known and self._resume(recovery_point):
            self.clean = True
            self.unsynced = False
        else:
            self._recover(recovery_point, all_of_it=not known)
            damage_record.save(self.disk, self.directory, self.segments)
        if log_start_offset > self.end_offset:
            self._begin_again(log_start_offset)
        self.log_start_offset = max(log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(self.end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        self.removed_deletes.truncate(self.end_offset)
        if not knows_removed:
            self.removed_deletes.note(self.end_offset)
        for offset in leftovers.find_stray_snapshots(self.snapshots, self.bases, self.end_offset):
            self._drop_snapshot(offset)
        return self

    @property
    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.segments]

    # After a clean close

    def _resume(self, flushed: int) -> bool:
        """Open a log that was closed cleanly. Returns False if it is not as a clean close leaves it."""
        active = self.segments[-1]
        try:
            self.end_offset = active.resume()
            if flushed and self.end_offset != flushed:
                raise CorruptIndex(f"it ends at offset {self.end_offset}, the checkpoint says {flushed}")
            self._check_transactions(active)
            self._load_epochs()
            self._load_producers(self.end_offset)
        except (CorruptBatch, CorruptIndex) as error:
            logger.warning("%s was closed cleanly, but is checked because of an error: %s", self.directory, error)
            return False
        self.recovery_point = self.end_offset
        return True

    def _check_transactions(self, active: Segment) -> None:
        if active.transactions.path.rpartition("/")[2] in self._names:
            entries = active.transactions.entries()
            if entries and not active.base_offset <= entries[-1].last_offset < self.end_offset:
                raise CorruptIndex(f"{active.transactions.path} ends with {entries[-1]}")

    # After a crash

    def _recall_damage(self) -> bool:
        """Load the damaged ranges of earlier recoveries. Returns False if that fails: then the whole log is read."""
        try:
            damage_record.load(self.disk, self.directory, self.segments)
        except ValueError as error:
            logger.warning("%s/%s cannot be read, the log is checked: %s", self.directory, names.DAMAGE, error)
            return False
        return True

    def _recover(self, recovery_point: int, *, all_of_it: bool) -> None:
        first = 0 if all_of_it else max(bisect_right(self.bases, recovery_point) - 1, 0)
        if first and self.bases[first] == recovery_point:
            self._forget_indexes(self.segments[first - 1])
        self._scan_from(first, recovery_point)
        if self.end_offset < recovery_point:
            # A recovery point behind the end of the log is wrong, so nothing is taken for flushed.
            logger.warning("%s: recovery point %d is after the end %d", self.directory, recovery_point, self.end_offset)
            self._compacted_to = OFFSET_MAX
            self.recovery_point = 0
            self._scan_from(0, self.segments[-1].base_offset)
            recovery_point = 0
        self.recovery_point = min(recovery_point, self.end_offset)

    def _forget_indexes(self, segment: Segment) -> None:
        """Delete the indexes of a segment that was sealed after the last flush: they may not have reached the disk."""
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
            if segment.path(suffix).rpartition("/")[2] in self._names:
                self.disk.unlink(segment.path(suffix))

    def _scan_from(self, first: int, recovery_point: int) -> None:
        base = self.segments[first].base_offset
        self._load_epochs(up_to=first)
        for offset in [offset for offset in self.snapshots if offset > base]:
            self._drop_snapshot(offset)
        self._load_producers(base)
        self._total = sum(segment.size for segment in self.segments[first:])
        self._done = self._reported = 0
        self.end_offset = base
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            if index > first and self._has_lost_between(segment, recovery_point):
                logger.warning(
                    "%s ends at offset %d: the records from there to %d were lost before they were flushed",
                    self.directory,
                    self.end_offset,
                    segment.base_offset,
                )
                self._drop_from(index)
                break
            if index > first:
                if segment.base_offset > max(self.end_offset, recovery_point):
                    self.removed_deletes.note(segment.base_offset)
                self._take_snapshot(segment.base_offset)
            self.end_offset = segment.base_offset
            cut = self._scan_segment(index, recovery_point)
            if cut is not None:
                self._drop_from(index + 1)
                lost = segment.file.size - cut
                logger.warning("%s ends at offset %d, %d bytes are cut off", segment, self.end_offset, lost)
                segment.file.truncate(cut)
                sync(segment.file)  # or a power cut could bring what was cut off back, behind new batches
                break
            if index + 1 < len(self.segments):
                segment.write_indexes()
                segment.seal()
        self.segments[-1].is_active = True
        self._report()

    def _has_lost_between(self, segment: Segment, recovery_point: int) -> bool:
        """Whether unflushed records before this segment are missing: the power went before they reached the disk.

        Compaction and damage leave gaps, too. Our compaction takes nothing from behind the recovery point on disk. So
        where the checkpoints of both agree about that, a gap behind the recovery point is a loss; and so is any gap in
        a log that was begun here and has no recovery point yet. Other logs may have been compacted elsewhere and moved
        here by their files: a compacted topic's, and one with gaps inside of segments, are never cut between segments.

        What was copied from a leader has the gaps of its compaction, also behind the recovery point. The file of the
        removed deletes knows of those that were flushed.
        """
        if segment.base_offset == self.end_offset or any(one.damage for one in self.segments):
            return False
        if self._lost_nothing or segment.base_offset <= self._flushed_holes_before:
            return False
        known = recovery_point > 0 and self._compacted_to <= recovery_point
        if not known and (self._has_gaps or (self.settings.compacted and not self._begun_here)):
            return False
        return segment.base_offset > max(recovery_point, self.log_start_offset)

    def _scan_segment(self, index: int, recovery_point: int) -> int | None:
        """Read a segment with its checksums. Returns where it has to be cut; None if all of it stays."""
        segment = self.segments[index]
        size, file = segment.size, segment.file
        segment.forget()
        aborted: list[AbortedTransaction] = []
        damages: list[Damage] = []
        position = 0
        cut = None
        while position < size:
            position, reason = self._scan_sound(segment, position, size, aborted)
            if reason is None:
                break
            further = None
            if self.end_offset < recovery_point:
                further = find_sound_batch(file, position + 1, size, self.end_offset)
            if further is None and (index + 1 == len(self.segments) or self.end_offset >= recovery_point):
                cut = position
                break
            end = size if further is None else further
            logger.error("%s is damaged in bytes %d to %d, which had been flushed: %s", segment, position, end, reason)
            damages.append(self._describe_damage(segment, index, position, end, further))
            self._has_gaps = True
            position = end
            segment.skip_to(end)
        segment.damage = tuple(damages)
        segment.transactions.replace(aborted)
        segment.is_suspect = False
        return cut

    def _scan_sound(
        self, segment: Segment, begin: int, size: int, aborted: list[AbortedTransaction]
    ) -> tuple[int, str | None]:
        """Count batches up to the first that is not sound. Returns its position and the reason, None at the end."""
        position = begin
        after = bisect_right(self.bases, segment.base_offset)
        limit = self.bases[after] if after < len(self.segments) else segment.base_offset + RELATIVE_OFFSET_MAX + 1
        try:
            for position, header in scan(segment.file, begin, size, checked=True):
                # The checksum does not cover offsets.
                if not self.end_offset <= header.base_offset <= header.last_offset < limit:
                    return position, f"offset {header.base_offset} after {self.end_offset - 1}"
                if header.base_offset != self.end_offset or header.record_count != header.last_offset_delta + 1:
                    self._has_gaps = True
                    if header.base_offset >= self.recovery_point:  # before that it may be a gap of our own compaction
                        self.removed_deletes.note_hole(header)
                segment.count_header(header)
                self._replay(segment.file, position, header, aborted)
                self.end_offset = header.next_offset
                position += header.size
                self._done += header.size
                if self._done - self._reported >= PROGRESS_BYTES:
                    self._report()
        except CorruptBatch as error:
            return position, str(error)
        return position, None

    def _describe_damage(self, segment: Segment, index: int, position: int, end: int, further: int | None) -> Damage:
        if further is not None:
            next_offset = next(scan(segment.file, further, segment.file.size))[1].base_offset
        else:
            next_offset = self.segments[index + 1].base_offset
        return Damage(self.end_offset, next_offset, position, end)

    def _replay(self, file: File, position: int, header: BatchHeader, aborted: list[AbortedTransaction]) -> None:
        self._replay_epoch(header)
        if header.producer_id >= 0:
            marker = read_marker(file, position, header)
            if marker is not None:
                entry = self.producers.find_aborted_by(header, header.base_offset, marker)
                if entry is not None:
                    aborted.append(entry)
            self.producers.replay(header, header.base_offset, marker)

    def _replay_epoch(self, header: BatchHeader) -> None:
        """Take over the batch's epoch where the file of the epochs lacks it, or has one there that got no records."""
        offset = max(header.base_offset, self.log_start_offset)
        epoch = header.leader_epoch
        if header.last_offset >= offset and epoch >= 0 and epoch != self.epochs.epoch_at(offset):
            self.epochs.assign(epoch, offset)

    def _report(self) -> None:
        self._reported = self._done
        if self._progress is not None:
            self._progress(self._done, self._total)

    # Segments

    def _open_segment(self, base_offset: int) -> Segment:
        interval = self.settings.index_interval_bytes
        return Segment(
            self.disk, self.directory, base_offset, created_ms=self.now_ms, interval=interval, cache=self.cache
        )

    def _begin(self, base_offset: int) -> None:
        interval = self.settings.index_interval_bytes
        self.segments = [
            Segment.create(
                self.disk,
                self.directory,
                base_offset,
                created_ms=self.now_ms,
                interval=interval,
                cache=self.cache,
                may_have_indexes=False,  # index files without a segment were deleted as leftovers
            )
        ]
        self.unsynced = True

    def _begin_again(self, log_start_offset: int) -> None:
        """The log ends before its start, so a crash took only deleted records: begin anew at the start offset."""
        logger.warning("%s ends at %d, before its start %d", self.directory, self.end_offset, log_start_offset)
        self._drop_from(0)
        for offset in list(self.snapshots):
            self._drop_snapshot(offset)
        self.producers.clear()
        self.epochs.clear()
        self._begin(log_start_offset)
        self.end_offset = self.recovery_point = log_start_offset

    def _drop_from(self, index: int) -> None:
        """Delete this segment and all later ones, the last one first, so that an interruption leaves no hole."""
        for segment in reversed(self.segments[index:]):
            self._unlink(segment)
            self.disk.fsync_directory(self.directory)
        del self.segments[index:]

    def _drop_before(self, log_start_offset: int) -> None:
        """Delete segments below the log's start. A crash may have interrupted that, and left any of them."""
        while len(self.segments) > 1 and self.segments[1].base_offset <= log_start_offset:
            self._unlink(self.segments.pop(0))

    def _unlink(self, segment: Segment) -> None:
        segment.close()
        for suffix in names.SEGMENT_SUFFIXES:
            if self.disk.exists(segment.path(suffix)):
                self.disk.unlink(segment.path(suffix))

    # Epochs

    def _load_epochs(self, up_to: int | None = None) -> None:
        """Load the epochs from their file, or if that is not sound, from the batches of segments before `up_to`."""
        try:
            self.epochs = LeaderEpochs.load(self.disk, f"{self.directory}/{names.EPOCHS}")
            return
        except (FileNotFoundError, ValueError) as error:
            if not isinstance(error, FileNotFoundError):
                logger.warning("%s/%s: the epochs are read from the log: %s", self.directory, names.EPOCHS, error)
        self.epochs = LeaderEpochs(self.disk, f"{self.directory}/{names.EPOCHS}")
        for segment in self.segments[:up_to]:
            try:
                for _, header in scan(segment.file, 0, segment.size):
                    if header.leader_epoch > self.epochs.latest:
                        self.epochs.assign(header.leader_epoch, header.base_offset)
            except CorruptBatch as error:
                logger.error("%s: %s", segment, error)

    def _load_removed_deletes(self) -> bool:
        """Returns False if the file cannot be read: then any tombstone may be missing."""
        try:
            self.removed_deletes = RemovedDeletes.load(self.disk, self.directory)
        except ValueError as error:
            logger.warning("%s/%s cannot be read: %s", self.directory, names.REMOVED_DELETES, error)
            return False
        return True

    # Producers

    def _load_producers(self, up_to: int) -> None:
        expiration_ms = self.settings.producer_id_expiration_ms
        self.producers = restore_producers(self.disk, self.segments, self.snapshots, up_to, self.now_ms, expiration_ms)

    def _take_snapshot(self, offset: int) -> None:
        write_snapshot(self.disk, self.directory, offset, self.producers)
        self.snapshots.append(offset)

    def _drop_snapshot(self, offset: int) -> None:
        self.snapshots.remove(offset)
        self.disk.unlink(names.path(self.directory, offset, names.SNAPSHOT))
