"""The files of a log as a whole: its segments in order, its producer snapshots, and files that are being deleted.

Files of dropped segments are first renamed to `.deleted`, so that reads which have begun can finish, and unlinked some
time later by the `Removal` that `take_deleted` returns.
"""

import contextlib
import logging
from bisect import bisect_right
from typing import Protocol

from ottla.errors import KafkaError
from ottla.records.batch import CorruptBatch
from ottla.storage import leftovers, names
from ottla.storage.files import Disk, File
from ottla.storage.index import CorruptIndex, IndexCache
from ottla.storage.producer_restore import replay_segment, restore_producers, write_snapshot
from ottla.storage.producer_state import ProducerStates
from ottla.storage.removal import Removal
from ottla.storage.scan import scan
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

OFFSET_MAX = 2**63 - 1


class UnfinishedSwap(Protocol):
    def finish_or_undo(self) -> None:
        """Finish the swap if the log already reads from the new segment, otherwise undo it."""


class Segments:
    __slots__ = ("_bases", "_disk", "_doomed", "cache", "created", "directory", "items", "sealed", "snapshots", "swap")

    def __init__(
        self, disk: Disk, directory: str, items: list[Segment], snapshots: list[int], cache: IndexCache, created: int
    ) -> None:
        self._disk = disk
        self.cache = cache
        self._bases = [segment.base_offset for segment in items]
        self._doomed: list[tuple[str, File | None]] = []
        self.directory = directory
        self.items = items
        self.snapshots = snapshots
        self.created = created
        """How many files were created so far: a flush has to make their directory entries durable, too."""
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
                self._disk, self.directory, base_offset, created_ms=now_ms, interval=interval, cache=self.cache
            )
        except OSError:
            self._unlink(names.path(self.directory, base_offset, names.LOG))
            raise

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
        producers = restore_producers(self._disk, self.items, self.snapshots, segment.base_offset)
        segment.transactions.replace(replay_segment(segment, segment.base_offset, OFFSET_MAX, producers))
        segment.is_suspect = False

    # Snapshots

    def take_snapshot(self, offset: int, producers: ProducerStates) -> None:
        write_snapshot(self._disk, self.directory, offset, producers)
        if offset not in self.snapshots:
            self.snapshots.append(offset)
        self.created += 1

    def prune_snapshots(self) -> None:
        """Delete snapshots except the one at the start of each segment and the newest."""
        self._drop_snapshots(
            leftovers.find_stray_snapshots(self.snapshots, self._bases, max(self.snapshots, default=0))
        )

    def drop_snapshots_after(self, offset: int) -> None:
        self._drop_snapshots([snapshot for snapshot in self.snapshots if snapshot > offset])

    def _drop_snapshots(self, offsets: list[int]) -> None:
        for offset in offsets:
            self.snapshots.remove(offset)
            self._unlink(names.path(self.directory, offset, names.SNAPSHOT))

    # Dropping

    def drop_before(self, offset: int, *, in_order: bool = False) -> int:
        """Drop the segments that have no record at or after `offset`, but never the last one. Returns their number.

        With `in_order` each removal is durable before the next one. That is needed if nothing on disk says yet that the
        log begins at `offset`: otherwise a power cut could bring back an earlier segment without a later one.
        """
        count = self.index_of(offset)
        for _ in range(count):
            self.drop(0, 1)
            if in_order:
                self._disk.fsync_directory(self.directory)
        for snapshot in [snapshot for snapshot in self.snapshots if snapshot < self._bases[0]]:
            self.snapshots.remove(snapshot)
            self._doom(names.path(self.directory, snapshot, names.SNAPSHOT), None)
        return count

    def drop(self, first: int, end: int) -> None:
        """Take segments out of the log, the last one first, so that an interruption leaves no hole."""
        self.end_swap()
        self._doom_segments(first, end)
        del self.items[first:end], self._bases[first:end]

    def replace(self, first: int, end: int, segment: Segment) -> None:
        """Put one segment in the place of several. It has the base offset of the first of them."""
        self._doom_segments(first, end)
        self.items[first:end] = [segment]
        self._bases[first:end] = [segment.base_offset]
        self.created += 1
        self.prune_snapshots()

    def end_swap(self) -> None:
        """End a compaction's swap that is under way, before segments are dropped."""
        if self.swap is not None:
            self.swap.finish_or_undo()

    def _doom_segments(self, first: int, end: int) -> None:
        for segment in reversed(self.items[first:end]):
            self.cache.forget(segment)
            for suffix in names.SEGMENT_SUFFIXES:
                self._doom(segment.path(suffix), segment.open_file if suffix == names.LOG else None)

    def _doom(self, path: str, file: File | None) -> None:
        doomed = path + names.DELETED
        while self._disk.exists(doomed):
            # Compacted twice within file.delete.delay.ms: a fetch may still read from the first file.
            doomed = f"{doomed}{names.DELETED}"
        try:
            self._disk.rename(path, doomed)
        except FileNotFoundError:
            return
        if file is not None:
            file.path = doomed
        self._doomed.append((doomed, file))

    @property
    def has_deleted(self) -> bool:
        return bool(self._doomed)

    def take_deleted(self) -> Removal:
        """Hand over the files that were dropped since the last call."""
        doomed, self._doomed = self._doomed, []
        return Removal(self._disk, doomed)

    def _unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(path)

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
