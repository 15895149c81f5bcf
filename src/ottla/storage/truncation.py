"""Truncations: the end of a log is cut off, or all of its records are removed and it starts anew.

`start_truncation` cuts the log in memory, `Truncation.run` does the same on disk and may run on any thread, and
`finish_truncation` takes note of the result. Between the first and the last the log can be read, but nothing can be
appended. Every change of the disk is in `run`, which can be repeated, because each of them may find no room: on a file
system that copies on write, a rename and an unlink need some, too. A crash before the end leaves a log without a hole
that has at least the records before the cut. If it has more, the leader says again where to cut.

A truncation costs several fsyncs, and reads all records since the last snapshot of the producers' state. After a change
of leaders a broker may have to truncate thousands of logs.
"""

from ottla.storage import damage_record, names
from ottla.storage.disk_errors import is_failure
from ottla.storage.flush import sync
from ottla.storage.index import IndexCache
from ottla.storage.log import Log
from ottla.storage.producer_restore import restore_producers
from ottla.storage.producer_state import ProducerStates
from ottla.storage.removal import DroppedFiles
from ottla.storage.scan import BatchLocation


def start_truncation(log: Log, offset: int, now_ms: int = 0) -> "Truncation":
    """Cut off the batch that contains `offset` and all later ones, in memory. `Truncation.run` does so on disk.

    The log ends where that batch began. After an OSError the log is as it was.
    """
    files = log.files
    if offset < files.items[0].base_offset:
        return start_anew(log, offset, now_ms)
    files.end_swap()
    last = files.index_of(offset)
    cut = files.items[last].cut(offset)
    end_offset = min(offset, cut.base_offset) if cut is not None else offset
    dropped = files.take_out(last + 1, end_offset)
    log.note_cut(end_offset)
    log.epochs.truncate_from_end(end_offset)
    return Truncation(log, dropped, cut)


def start_anew(log: Log, offset: int, now_ms: int = 0) -> "Truncation":
    """Like `start_truncation`, for all records. The next one gets `offset`."""
    dropped = log.files.start_new(offset, now_ms, log.settings.index_interval_bytes)
    log.producers.clear()
    log.epochs.clear()
    log.note_cut(offset)
    log.log_start_offset = offset
    return Truncation(log, dropped, None)


def finish_truncation(log: Log, truncation: "Truncation") -> None:
    """Take note that `truncation` has run without an error. Records can be appended again."""
    log.files.take_back(truncation.dropped)
    log.resume_appends(truncation.producers)


class Truncation:
    """The disk's part of a truncation.

    `run` uses no memory of the log that the log's own thread may change. After an OSError it can be run again. What was
    dropped does not wait for its removal then, because it may be the very room that is missing.
    """

    __slots__ = (
        "_cut",
        "_directory",
        "_disk",
        "_end_offset",
        "_segments",
        "_snapshots",
        "_unsaved",
        "dropped",
        "producers",
    )

    def __init__(self, log: Log, dropped: DroppedFiles, cut: BatchLocation | None) -> None:
        """`dropped`: what followed the last of the segments that stay.

        `cut`: where the last segment ends now; None if it ends there already.
        """
        self._disk = log.files.disk
        self.dropped = dropped
        self._directory = log.directory
        self._segments = tuple(log.segments)
        self._snapshots = list(log.files.snapshots)
        self._cut = cut
        self._end_offset = log.end_offset
        contents = {each.path: each.take_unsaved() for each in (log.epochs, log.removed_deletes)}
        self._unsaved = {path: content for path, content in contents.items() if content is not None}
        self.producers = ProducerStates()
        """The state of the producers at the new end of the log, after `run`."""

    def run(self) -> None:
        try:
            self._run()
        except OSError as error:
            if not is_failure(error):
                self.dropped.make_room()
            raise

    def _run(self) -> None:
        self.dropped.run()
        # The removal of later segments is durable before the last one is cut, so that a crash leaves no hole.
        self._disk.fsync_directory(self._directory)
        active = self._segments[-1]
        if self._cut is not None:
            active.file.truncate(self._cut.position)
            sync(active.file)  # or a power cut could bring back what was cut off, behind batches of another leader
            active.truncate_transactions(self._cut.base_offset)
        for path, content in self._unsaved.items():
            self._disk.replace(path, content)
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
