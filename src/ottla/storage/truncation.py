"""Truncations: the end of a log is cut off, or all of its records are removed and it starts anew.

`prepare_truncation` does what may fail while the log is as it was. `start_truncation` cuts the log in memory,
`Truncation.run` does the same on disk and may run on any thread, and `finish_truncation` takes note of the result.
Between the last two steps the log can be read, but nothing can be appended.

A truncation costs several fsyncs, and reads all records since the last snapshot of the producers' state. After a change
of leaders a broker may have to truncate thousands of logs.
"""

from ottla.storage import damage_record, names
from ottla.storage.flush import sync
from ottla.storage.index import IndexCache
from ottla.storage.log import Log
from ottla.storage.producer_restore import restore_producers
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scan import BatchLocation


def prepare_truncation(log: Log, offset: int) -> None:
    """Do what needs a descriptor before `start_truncation(log, offset)`. After an OSError the log is as it was."""
    files = log.files
    if offset < files.items[0].base_offset:
        prepare_new_start(log, offset)
    else:
        files.items[files.index_of(offset)].prepare_cut(offset)


def start_truncation(log: Log, offset: int, now_ms: int = 0) -> "Truncation":
    """Cut off the batch that contains `offset` and all later ones, in memory. `Truncation.run` does so on disk.

    The log ends where that batch began.
    """
    files = log.files
    if offset < files.items[0].base_offset:
        return start_anew(log, offset, now_ms)
    files.drop(files.index_of(offset) + 1, len(files.items))
    cut = files.active.cut(offset)
    log.note_cut(min(offset, cut.base_offset) if cut is not None else offset)
    files.drop_snapshots_after(log.end_offset)
    log.epochs.truncate_from_end(log.end_offset)
    return Truncation(log, cut)


def prepare_new_start(log: Log, offset: int) -> None:
    """Do what may fail on a full disk before `start_anew(log, offset)`. After an OSError the log is as it was."""
    log.files.prepare_start(offset)


def start_anew(log: Log, offset: int, now_ms: int = 0) -> "Truncation":
    """Like `start_truncation`, for all records. The next one gets `offset`."""
    log.files.start_new(offset, now_ms, log.settings.index_interval_bytes)
    log.producers.clear()
    log.epochs.clear()
    log.note_cut(offset)
    log.log_start_offset = offset
    return Truncation(log, None)


def finish_truncation(log: Log, truncation: "Truncation") -> None:
    """Take note that `truncation` has run without an error. Records can be appended again."""
    log.resume_appends(truncation.producers)


class Truncation:
    """The disk's part of a truncation.

    `run` uses no memory of the log that the log's own thread may change. After an OSError it can be run again.
    """

    __slots__ = ("_cut", "_directory", "_disk", "_end_offset", "_epochs", "_segments", "_snapshots", "producers")

    def __init__(self, log: Log, cut: BatchLocation | None) -> None:
        """`cut`: where the last segment ends now; None if it ends there already."""
        self._disk = log.files.disk
        self._directory = log.directory
        self._segments = tuple(log.segments)
        self._snapshots = list(log.files.snapshots)
        self._cut = cut
        self._end_offset = log.end_offset
        self._epochs = log.epochs.take_unsaved()
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
