"""The files of a log as a whole: its segments in order, its producer snapshots, and files that are being deleted.

Files of dropped segments are first renamed to `.deleted`, so that reads which have begun can finish, and unlinked some
time later by the `Removal` that `take_deleted` returns.
"""

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from ottla.errors import KafkaError
from ottla.records.batch import CorruptBatch
from ottla.storage import leftovers, names
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Disk
from ottla.storage.index import CorruptIndex, IndexCache
from ottla.storage.producer_restore import replay_segment, restore_producers, write_snapshot
from ottla.storage.producer_state import ProducerStates
from ottla.storage.removal import Doomed, DroppedFiles, Removal, doom_file, doom_segment, patience
from ottla.storage.scan import scan
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

OFFSET_MAX = 2**63 - 1


class UnfinishedSwap(Protocol):
    def finish_or_undo(self) -> None:
        """Finish the swap if the log already reads from the new segment, otherwise undo it."""


class Segments:
    __slots__ = (
        "_bases",
        "_doomed",
        "_durable_names",
        "cache",
        "created",
        "directory",
        "disk",
        "is_directory_durable",
        "items",
        "sealed",
        "snapshots",
        "swap",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        items: list[Segment],
        snapshots: list[int],
        cache: IndexCache,
        *,
        has_unsynced_names: bool,
        is_directory_durable: bool,
    ) -> None:
        self.disk = disk
        self.cache = cache
        self._bases = [segment.base_offset for segment in items]
        self._doomed: list[Doomed] = []
        self.directory = directory
        self.items = items
        self.snapshots = snapshots
        self.created = int(has_unsynced_names)
        """How many files were created so far: a flush has to make their directory entries durable, too."""
        self._durable_names = 0
        """How many had been created when the last flush began that succeeded."""
        self.is_directory_durable = is_directory_durable
        """Whether the directory itself would survive a power cut."""
        self.sealed: list[Segment] = []
        """Segments whose index files were written and not yet synced. Their records may be on the disk already."""
        self.swap: UnfinishedSwap | None = None

    @property
    def active(self) -> Segment:
        return self.items[-1]

    def index_of(self, offset: int) -> int:
        """The index of the segment that contains this offset, or would contain it."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, segment: Segment, log_end_offset: int) -> int:
        """The offset at which the next segment begins, or at which the log ends."""
        after = bisect_right(self._bases, segment.base_offset)
        return self._bases[after] if after < len(self._bases) else log_end_offset

    def create(self, base_offset: int, now_ms: int, interval: int) -> Segment:
        """Create a segment's file without making it part of the log. After an OSError there is no file."""
        try:
            return Segment.create(
                self.disk, self.directory, base_offset, created_ms=now_ms, interval=interval, cache=self.cache
            )
        except OSError:
            with contextlib.suppress(OSError):
                self.disk.unlink(names.path(self.directory, base_offset, names.LOG))
            raise

    def start_new(self, base_offset: int, now_ms: int, interval: int) -> DroppedFiles:
        """Take all segments and snapshots out in memory, and begin with an empty segment.

        The disk may be full: what is taken out makes room for the new file. OSError only if a swap cannot be ended;
        nothing has changed then.
        """
        self.end_swap()
        segment = Segment.begin(
            self.disk, self.directory, base_offset, created_ms=now_ms, interval=interval, cache=self.cache
        )
        dropped = self.take_out(0, -1)
        dropped.successor = segment
        self.add(segment)
        return dropped

    def add(self, segment: Segment) -> None:
        self.items.append(segment)
        self._bases.append(segment.base_offset)
        self.created += 1

    # Aborted transactions

    def aborted_transactions(self, from_offset: int, up_to: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [from_offset, up_to). A missing or damaged index is rebuilt."""
        found: list[AbortedTransaction] = []
        for segment in self.items[self.index_of(from_offset) :]:
            try:
                if segment.is_suspect:
                    raise CorruptIndex("index files are missing")
                if not segment.transactions.is_loaded:
                    _check_markers(segment)
                entries, complete = segment.transactions.collect(from_offset, up_to)
            except CorruptIndex as error:
                logger.warning("%s: the transaction index is built again: %s", segment, error)
                self._rebuild_transaction_index(segment)
                entries, complete = segment.transactions.collect(from_offset, up_to)
            found += entries
            if complete:
                break
        return found

    def _rebuild_transaction_index(self, segment: Segment) -> None:
        producers = restore_producers(self.disk, self.items, self.snapshots, segment.base_offset)
        aborted = replay_segment(segment, segment.base_offset, OFFSET_MAX, producers)
        try:
            segment.transactions.replace(aborted)
        except OSError as error:
            if is_failure(error):
                raise
            logger.warning("%s: the transaction index is not written: %s", segment, describe_error(error))
        segment.is_suspect = False

    # Snapshots

    def take_snapshot(self, offset: int, producers: ProducerStates) -> None:
        write_snapshot(self.disk, self.directory, offset, producers)
        if offset not in self.snapshots:
            self.snapshots.append(offset)
        self.created += 1

    def prune_snapshots(self) -> None:
        """Delete snapshots except the one at the start of each segment and the newest.

        One that the disk does not let go of stays until the next call.
        """
        strays = leftovers.find_stray_snapshots(self.snapshots, self._bases, max(self.snapshots, default=0))
        with patience(self.directory):
            for offset in strays:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.unlink(names.path(self.directory, offset, names.SNAPSHOT))
                self.snapshots.remove(offset)

    # Flushing

    @property
    def has_unsynced_names(self) -> bool:
        """Whether files were created whose directory entries are not known to be on the disk."""
        return self.created != self._durable_names

    def list_directories_to_sync(self, closing: bool) -> list[str]:
        if not self.is_directory_durable:
            return [self.directory, self.directory.rpartition("/")[0]]
        return [self.directory] if closing or self.has_unsynced_names else []

    def list_paths_to_sync(self, recovery_point: int, closing: bool) -> list[str]:
        """The files beside the `.log` files that a flush of everything after the recovery point has to sync."""
        unflushed = self.items[self.index_of(recovery_point) :]
        paths = [
            segment.path(suffix)
            for segment in dict.fromkeys((*self.sealed, *unflushed))
            for suffix in names.SEGMENT_SUFFIXES[1:]
            if closing or segment is not self.active
        ]
        if self.active.has_aborts:
            # If the segment is sealed before the next flush, all of its records are below the recovery point then, and
            # recovery would not rebuild this index.
            paths.append(self.active.path(names.TRANSACTION_INDEX))
        snapshots = [offset for offset in self.snapshots if offset >= recovery_point]
        paths += [names.path(self.directory, offset, names.SNAPSHOT) for offset in snapshots]
        if not self.is_directory_durable:
            paths.append(f"{self.directory}/{names.METADATA}")
        return paths

    def note_flushed(self, created: int, sealed: Sequence[Segment]) -> None:
        """Take note of a flush that began when `created` files were there, and synced the indexes of `sealed`."""
        self.is_directory_durable = True
        self._durable_names = max(self._durable_names, created)
        self.sealed = [segment for segment in self.sealed if segment not in sealed]

    # Dropping

    def has_any_before(self, offset: int) -> bool:
        """Whether a segment has no record at or after `offset`, so that `drop_before` would drop it."""
        return len(self._bases) > 1 and self._bases[1] <= offset

    def drop_before(self, offset: int, *, in_order: bool = False) -> int:
        """Drop the segments that have no record at or after `offset`, but never the last one. Returns their number.

        With `in_order` each removal is durable before the next one. That is needed if nothing on disk says yet that the
        log begins at `offset`: otherwise a power cut could bring back an earlier segment without a later one.
        """
        count = self.index_of(offset)
        for _ in range(count):
            self.drop(0, 1)
            if in_order:
                self.disk.fsync_directory(self.directory)
        with patience(self.directory):
            for snapshot in [snapshot for snapshot in self.snapshots if snapshot < self._bases[0]]:
                doom_file(self.disk, names.path(self.directory, snapshot, names.SNAPSHOT), None, self._doomed)
                self.snapshots.remove(snapshot)
        return count

    def drop(self, first: int, end: int) -> None:
        """Take segments out of the log, the last one first, so that an interruption leaves no hole.

        After an OSError the rest is still there.
        """
        self.end_swap()
        for index in reversed(range(first, end)):
            self.doom(self.items[index])
            del self.items[index], self._bases[index]

    def take_out(self, first: int, end_offset: int) -> DroppedFiles:
        """Take the segments from index `first` on, and the snapshots after `end_offset`, out of the log in memory.

        A swap must not be under way.
        """
        segments = self.items[first:]
        for segment in segments:
            self.cache.forget(segment)
        snapshots = [snapshot for snapshot in self.snapshots if snapshot > end_offset]
        del self.items[first:], self._bases[first:]
        self.snapshots[:] = [snapshot for snapshot in self.snapshots if snapshot <= end_offset]
        return DroppedFiles(self.disk, self.directory, segments, snapshots)

    def drop_empty(self, index: int) -> None:
        """Drop a segment without records. It does no harm if the disk does not let go of it."""
        with patience(self.directory):
            self.drop(index, index + 1)

    def replace(self, first: int, end: int, segment: Segment) -> None:
        """Put one segment in the place of several. It has the base offset of the first of them.

        The files of the others stay. The caller calls `doom`.
        """
        self.items[first:end] = [segment]
        self._bases[first:end] = [segment.base_offset]
        self.created += 1

    def end_swap(self) -> None:
        """End a compaction's swap that is under way, before segments are dropped."""
        if self.swap is not None:
            self.swap.finish_or_undo()

    def doom(self, segment: Segment) -> None:
        """Rename a segment's files, to be deleted later. After an OSError all of them have their names."""
        doom_segment(self.disk, segment, self._doomed)
        self.cache.forget(segment)

    def take_back(self, dropped: DroppedFiles) -> None:
        """The files of a truncation have been renamed: they are deleted with the others."""
        self._doomed += dropped.doomed
        dropped.doomed = []

    @property
    def has_deleted(self) -> bool:
        return bool(self._doomed)

    def take_deleted(self) -> Removal:
        """Hand over the files that were dropped since the last call."""
        doomed, self._doomed = self._doomed, []
        return Removal(self.disk, doomed)

    # Ending

    def close(self) -> None:
        self.end_swap()
        for segment in self.items:
            segment.close()


def _check_markers(segment: Segment) -> None:
    """CorruptIndex if an entry of the transaction index has no marker in the log. The index has no checksum."""
    for entry in segment.transactions.entries():
        try:
            location = segment.locate(entry.last_offset)
            header = next(scan(segment.file, location.position, segment.size))[1] if location is not None else None
        except (KafkaError, CorruptBatch):
            continue  # the log itself is damaged there, and says so
        if header is None or header.base_offset != entry.last_offset or header.producer_id != entry.producer_id:
            raise CorruptIndex(f"no marker for {entry}")
