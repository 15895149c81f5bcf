"""The disk's part of a truncation.

`Log.start_truncation` cuts the log in memory, `Truncation.run` does the same on disk and may run on any thread, and
`Log.finish_truncation` takes note of the result. Between the two the log can be read, but nothing can be appended.

A truncation costs several fsyncs, and reads all records since the last snapshot of the producers' state. After a change
of leaders a broker may have to truncate thousands of logs.
"""

from collections.abc import Sequence

from ottla.storage import damage_record, names
from ottla.storage.files import Disk
from ottla.storage.flush import sync
from ottla.storage.index import IndexCache
from ottla.storage.producer_restore import restore_producers
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scan import BatchLocation
from ottla.storage.segment import Segment


class Truncation:
    """`run` uses no memory of the log that the log's own thread may change. After an OSError it can be run again."""

    __slots__ = ("_cut", "_directory", "_disk", "_end_offset", "_epochs", "_segments", "_snapshots", "producers")

    def __init__(
        self,
        disk: Disk,
        segments: Sequence[Segment],
        snapshots: Sequence[int],
        cut: BatchLocation | None,
        end_offset: int,
        epochs: bytes | None,
    ) -> None:
        """`cut`: where the last segment ends now; None if it ends there already."""
        self._disk = disk
        self._directory = segments[-1].directory
        self._segments = tuple(segments)
        self._snapshots = list(snapshots)
        self._cut = cut
        self._end_offset = end_offset
        self._epochs = epochs
        self.producers = ProducerStates()
        """The state of the producers at the new end of the log, after `run`."""

    def run(self) -> None:
        # The removal of later segments is durable before the last one is cut, so that a crash leaves no hole.
        self._disk.fsync_directory(self._directory)
        active = self._segments[-1]
        if self._cut is not None:
            active.file.truncate(self._cut.position)
            sync(active.file)  # or a power cut could bring back what was cut off, behind batches of another leader
            active.truncate_transactions(self._cut.base_offset)
        if self._epochs is not None:
            self._disk.replace(f"{self._directory}/{names.EPOCHS}", self._epochs)
        damage_record.save(self._disk, self._directory, self._segments)
        self.producers = self._restore_producers()

    def _restore_producers(self) -> ProducerStates:
        # Segments of its own: the log's thread may load and unload the indexes of the others meanwhile. Nothing
        # expires here without a clock; the next `expire_producers` does that.
        cache, disk = IndexCache(), self._disk
        copies = [segment.open_again(disk, cache) for segment in self._segments]
        try:
            return restore_producers(disk, copies, self._snapshots, self._end_offset)
        except FileNotFoundError:
            # Retention was faster. It never takes the last segment.
            found = [segment for segment in self._segments if disk.exists(segment.path(names.LOG))]
            snapshots = [offset for offset in self._snapshots if disk.exists(self._make_path(offset))]
            if not found or (len(found), len(snapshots)) == (len(self._segments), len(self._snapshots)):
                raise
            self._segments, self._snapshots = tuple(found), snapshots
        finally:
            for copy in copies:
                copy.close()
        return self._restore_producers()

    def _make_path(self, snapshot: int) -> str:
        return names.path(self._directory, snapshot, names.SNAPSHOT)
