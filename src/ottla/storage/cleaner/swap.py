"""How a compacted segment takes the place of those it was made from, so that a crash at any moment leaves a whole log.

    begin    .cleaned becomes .swap                               crash before the sync: the old segments are the log
    sync     the names are on the disk                            crash from here on: opening the log ends the swap
    switch   reads go to the new segment, whose files are still called .swap; the old ones become .deleted
    sync     the old names are gone from the disk                 or they could come back beside the new segment
    finish   the files get their names
    sync     and keep them                                        or .swap could stand beside the .cleaned of the next
    end

Only `sync` waits for the disk, and it may run in a thread. Code that takes segments out of the log in between calls
`finish_or_undo` first: a swap that has only begun is undone, one that was switched is finished. So is a swap that a
full disk interrupts, when the next one begins at the latest.
"""

import contextlib
import enum

from ottla.storage import names
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments


class Phase(enum.Enum):
    BEGUN = enum.auto()
    SWITCHED = enum.auto()
    FINISHED = enum.auto()
    OVER = enum.auto()


class Swap:
    """Replaces neighbouring segments (`replaced`) by the one that compaction made from them."""

    def __init__(self, files: Segments, replaced: list[Segment]) -> None:
        self._disk = files.disk
        self._files = files
        self._replaced = replaced
        self._undeleted = list(replaced)
        self._segment: Segment | None = None
        self.phase = Phase.BEGUN
        files.end_swap()
        files.swap = self
        try:
            for suffix in reversed(names.SEGMENT_SUFFIXES):
                self._rename(suffix + names.CLEANED, suffix + names.SWAP)
        except OSError:
            self._undo()
            raise

    def sync(self) -> None:
        self._disk.fsync_directory(self._files.directory)

    def switch(self) -> None:
        """Let reads go to the new segment. Called after the first sync."""
        if self.phase is not Phase.BEGUN:
            return
        last = self._replaced[-1]
        self._segment = Segment.under(
            names.SWAP,
            self._disk,
            self._files.directory,
            self._replaced[0].base_offset,
            created_ms=last.created_ms,
            interval=last.index_interval_bytes,
            cache=self._files.cache,
        )
        self.phase = Phase.SWITCHED
        first = self._files.items.index(self._replaced[0])
        self._files.replace(first, first + len(self._replaced), self._segment)
        self._delete_replaced()

    def _delete_replaced(self) -> None:
        """The last one first. After an OSError the rest is still there."""
        while self._undeleted:
            self._files.doom(self._undeleted[-1])
            self._undeleted.pop()
        self._files.prune_snapshots()

    def finish(self) -> None:
        """Give the new segment's files their final names. Called after the second sync."""
        if self.phase is not Phase.SWITCHED or self._segment is None:
            return
        transactions = self._segment.transactions
        for suffix in names.SEGMENT_SUFFIXES[1:]:
            self._rename(suffix + names.SWAP, suffix)
        transactions.path = self._make_path(names.TRANSACTION_INDEX)
        self._rename(names.LOG + names.SWAP, names.LOG)
        self._segment.take_final_name()
        self.phase = Phase.FINISHED

    def end(self) -> None:
        """Called after the third sync: another compaction may begin."""
        if self.phase is Phase.FINISHED:
            self._end()

    def finish_or_undo(self) -> None:
        if self.phase is Phase.BEGUN:
            self._undo()
        if self.phase is Phase.SWITCHED:
            self._delete_replaced()
            self.sync()
            self.finish()
        if self.phase is Phase.FINISHED:
            self.sync()
            self.end()

    def _undo(self) -> None:
        """Delete the .swap files first, durably: with them, opening the log would finish the swap."""
        for ending in (names.SWAP, names.CLEANED):
            for suffix in names.SEGMENT_SUFFIXES:
                with contextlib.suppress(FileNotFoundError):
                    self._disk.unlink(self._make_path(suffix + ending))
            self.sync()
        self._end()

    def _end(self) -> None:
        self.phase = Phase.OVER
        self._files.swap = None

    def _rename(self, suffix: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # few segments have a transaction index
            self._disk.rename(self._make_path(suffix), self._make_path(target))

    def _make_path(self, suffix: str) -> str:
        return names.path(self._files.directory, self._replaced[0].base_offset, suffix)
