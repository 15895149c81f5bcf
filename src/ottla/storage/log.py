"""A partition's log: segments in order, and everything that must change together when a batch is appended.

One directory per partition. All calls come from one thread, except `Flush.run`. The format of each file in the
directory is described in the module that owns it: `segment`, `index`, `transaction_index`, `producer_snapshot`,
`epochs`, `partition_metadata`. `opening` creates and opens logs, `truncation` cuts their ends off.
"""

from collections.abc import Callable

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import CONTROL, LOG_APPEND_TIME, BatchHeader, ControlMarker, CorruptBatch, control_type, stamp
from ottla.storage import log_read, timestamps
from ottla.storage.appended import Appended as Appended
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Bytes, Disk, File
from ottla.storage.flush import Flush as Flush
from ottla.storage.log_read import LogRead as LogRead
from ottla.storage.producer_restore import check_producer
from ottla.storage.producer_state import ProducerStates
from ottla.storage.recovery import Recovery
from ottla.storage.rolling import RollRule
from ottla.storage.scan import check_batches
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments
from ottla.storage.settings import LogSettings as LogSettings
from ottla.storage.timestamps import TimestampOffset as TimestampOffset
from ottla.storage.transaction_index import AbortedTransaction as AbortedTransaction

_PREFIX_SIZE = 12


class Log:
    __slots__ = (
        "_active",
        "_clean_end",
        "_failure",
        "_is_abandoned",
        "_refused",
        "_roll_rule",
        "_settings",
        "directory",
        "end_offset",
        "epochs",
        "files",
        "first_dirty_offset",
        "log_start_offset",
        "on_disk_failure",
        "producers",
        "recovery_point",
        "removed_deletes",
        "segments",
        "topic_id",
        "truncations",
    )

    def __init__(self, disk: Disk, directory: str, topic_id: bytes, recovered: Recovery) -> None:
        self.files = Segments(
            disk,
            directory,
            recovered.segments,
            recovered.snapshots,
            recovered.cache,
            has_unsynced_names=recovered.unsynced,
            is_directory_durable=recovered.clean,
        )
        self.directory = directory
        self.topic_id = topic_id
        self.segments = recovered.segments
        self.epochs = recovered.epochs
        self.removed_deletes = recovered.removed_deletes
        self.producers = recovered.producers
        self.log_start_offset = recovered.log_start_offset
        self.end_offset = recovered.end_offset
        self.recovery_point = recovered.recovery_point
        self.first_dirty_offset = 0
        """Compaction has been through all records before this offset."""
        self._active = self.segments[-1]
        self._clean_end = recovered.end_offset if recovered.clean else None
        self.truncations = 0
        self._failure: str | None = None
        self._refused: str | None = None
        """Why no record can be appended now; None if one can."""
        self._is_abandoned = False
        self.on_disk_failure: Callable[[str], None] | None = None
        """Called with a description when an error means that the disk fails, not only this log."""
        self.settings = recovered.settings

    def __repr__(self) -> str:
        return self.directory

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._roll_rule = RollRule(settings, self.directory)
        self._active.index_interval_bytes = settings.index_interval_bytes

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def has_unflushed_sealed_segment(self) -> bool:
        """Whether a sealed segment has records that are not known to be on the disk."""
        return self._active.base_offset > self.recovery_point

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    # Appending

    def append(self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """Append one checked batch as the leader, which gives it its offsets.

        `header` is the batch's own. A batch with a producer id must be the producer's next one; a batch that was
        appended before is not written again, and its first offsets are returned. KafkaError if the batch cannot be
        appended: then nothing has changed.
        """
        if self._refused is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._refused)
        producer_id = header.producer_id
        marker = None
        if producer_id >= 0:
            if header.attributes & CONTROL:
                marker = self._check_marker(batch, header)
            else:
                try:
                    known = check_producer(self.producers, self.segments, header)
                except OSError as error:
                    raise self._refusal("cannot be read", error) from error
                if known is not None:
                    append_time = known.timestamp if header.log_append_time else -1
                    return Appended(known.base_offset, known.last_offset, append_time, True)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        size = header.length + _PREFIX_SIZE
        max_timestamp = header.max_timestamp
        segment = self._active
        filled = segment.size
        if filled and self._is_roll_due(filled + size, last_offset, max_timestamp, now_ms):
            self.roll(now_ms)
            segment = self._active
        stamp(batch, base_offset, leader_epoch)
        try:
            if marker is not None:
                self._index_abort(segment, header, base_offset, marker)
            segment.append(batch, size, base_offset, last_offset, max_timestamp)
        except OSError as error:
            raise self._undo_append(segment, base_offset, error) from error
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if producer_id >= 0:
            self.producers.replay(header, base_offset, marker)
        self.end_offset = last_offset + 1
        append_time = max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return Appended(base_offset, last_offset, append_time, False)

    def append_as_follower(self, data: Bytes, now_ms: int) -> Appended | None:
        """Append whole batches as a follower: they keep the leader's offsets and epochs.

        An incomplete batch at the end is left out. Returns None if there is no whole batch. KafkaError if one is
        damaged or does not come after the end of this log.
        """
        if self._refused is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._refused)
        run: list[tuple[BatchHeader, ControlMarker | None]] = []
        begin = end = 0
        view = memoryview(data)
        try:
            sound = check_batches(view, self.end_offset)
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self}: {error}") from None
        for header, marker in sound:
            size = self._active.size + end - begin + header.size
            if self._is_roll_due(size, header.last_offset, header.max_timestamp, now_ms):
                self._append_run(view[begin:end], run)
                self.roll(now_ms, header.base_offset)
                run, begin = [], end
            run.append((header, marker))
            end += header.size
        self._append_run(view[begin:end], run)
        return Appended(sound[0][0].base_offset, sound[-1][0].last_offset, -1, False) if sound else None

    def _append_run(self, data: memoryview, run: list[tuple[BatchHeader, ControlMarker | None]]) -> None:
        """Append batches that all fit into the active segment, in one write."""
        segment = self._active
        if not run:
            return
        try:
            segment.write(data)
        except OSError as error:
            raise self._undo_append(segment, run[0][0].base_offset, error) from error
        for header, marker in run:
            if marker is not None and header.producer_id >= 0:
                try:
                    self._index_abort(segment, header, header.base_offset, marker)
                except OSError as error:  # the batches before this one stay
                    raise self._undo_append(segment, header.base_offset, error) from error
            segment.count_header(header)
            if header.leader_epoch != self.epochs.latest and header.leader_epoch >= 0:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.base_offset != self.end_offset or header.record_count <= header.last_offset_delta:
                self.removed_deletes.note_hole(header)
            if header.producer_id >= 0:
                self.producers.replay(header, header.base_offset, marker)
            self.end_offset = header.next_offset

    def _check_marker(self, batch: Bytes, header: BatchHeader) -> ControlMarker:
        try:
            marker = control_type(batch)
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        self.producers.check_marker(header, marker)
        return marker

    def _index_abort(self, segment: Segment, header: BatchHeader, base_offset: int, marker: ControlMarker) -> None:
        entry = self.producers.find_aborted_by(header, base_offset, marker)
        if entry is not None:
            segment.transactions.add(entry)
            self.files.created += 1  # the first entry creates the file; a superfluous fsync does no harm

    def _undo_append(self, segment: Segment, base_offset: int, error: OSError) -> KafkaError:
        """Cut off what a failed write left in the file. Returns the error for the caller.

        If there is no descriptor for that either, the next append does it first.
        """
        try:
            segment.undo(base_offset)
        except OSError as second:
            if is_failure(second):
                self.fail(f"{self} cannot be cut back after a failed write: {second}")
                return self._refusal("cannot be cut back after a failed write", second)
        return self._refusal("cannot be written", error)

    def _refusal(self, what: str, error: OSError) -> KafkaError:
        """Returns the error for the caller, and reports a disk that fails to `on_disk_failure`."""
        if self.on_disk_failure is not None and is_failure(error):
            self.on_disk_failure(describe_error(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self} {what}: {describe_error(error)}")

    def fail(self, reason: str) -> None:
        """Refuse further appends and a clean close, because it is unknown what the disk holds."""
        if self._failure is None:
            self._failure = self._refused = reason

    # Rolling

    def _is_roll_due(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        try:
            return self._roll_rule.is_due(self._active, size, last_offset, max_timestamp, now_ms)
        except OSError as error:
            raise self._refusal("cannot be read", error) from error

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Seal the active segment and begin a new one, at the end of the log or at `base_offset` if a gap follows."""
        active = self._active
        base = self.end_offset if base_offset is None else base_offset
        if active.base_offset == base:
            return
        if self._refused is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._refused)
        try:
            active.repair()
            self.files.take_snapshot(base, self.producers)
            if active.size:
                active.write_indexes()
            segment = self.files.create(base, now_ms, self._settings.index_interval_bytes)
        except OSError as error:
            raise self._refusal("cannot begin a segment", error) from error
        active.seal()
        self.files.add(segment)
        self._active = segment
        if active.size:
            self.files.sealed.append(active)
        else:
            self.files.drop_empty(len(self.segments) - 2)
        self.files.prune_snapshots()

    # Reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> LogRead | None:
        """Read at most `max_bytes` of one segment, from the batch that contains `offset` to before `up_to`.

        With `at_least_one` the first batch is returned whole, however large it is. Returns None if there is nothing to
        read. KafkaError OFFSET_OUT_OF_RANGE outside of the log, CORRUPT_MESSAGE or KAFKA_STORAGE_ERROR where the log
        is damaged.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            message = f"offset {offset} is not in {self.log_start_offset} to {self.end_offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset >= up_to or offset == self.end_offset:
            return None
        self._require_in_use()
        try:
            return log_read.read(self.files, self.end_offset, offset, max_bytes, up_to, at_least_one)
        except OSError as error:
            raise self._refusal("cannot be read", error) from error

    def find_offset_for_timestamp(self, timestamp: int, up_to: int) -> TimestampOffset | None:
        """Find the first record before `up_to` whose timestamp is at least `timestamp`."""
        self._require_in_use()
        try:
            return timestamps.find_first_at_or_after(self, timestamp, up_to)
        except OSError as error:
            raise self._refusal("cannot be read", error) from error

    def find_max_timestamp(self) -> TimestampOffset | None:
        """Find the first record that has the largest timestamp. It may be one before the log start."""
        self._require_in_use()
        try:
            return timestamps.find_largest(self)
        except OSError as error:
            raise self._refusal("cannot be read", error) from error

    # Transactions

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset up to which a read_committed consumer may read.

        Call it also when the high watermark moves: transactions that ended below it are forgotten then.
        """
        stable = self.producers.last_stable_offset(high_watermark)
        return stable if stable >= self.log_start_offset else self.log_start_offset

    def aborted_transactions(self, from_offset: int, up_to: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records in [from_offset, up_to)."""
        self._require_in_use()
        try:
            return self.files.aborted_transactions(from_offset, up_to)
        except OSError as error:
            raise self._refusal("cannot be read", error) from error

    def _require_in_use(self) -> None:
        if self._is_abandoned:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self} is not in use any more")

    def expire_producers(self, now_ms: int) -> int:
        return self.producers.expire(now_ms, self._settings.producer_id_expiration_ms)

    # Flushing

    def start_flush(self) -> Flush | None:
        """Collect the fsyncs that make everything now in the log durable. Returns None if everything is."""
        is_durable = self.recovery_point >= self.end_offset
        if is_durable and not self.files.has_unsynced_names and not self._has_unsaved:
            return None
        return self._collect_flush(closing=False)

    @property
    def _has_unsaved(self) -> bool:
        return self.epochs.is_dirty or self.removed_deletes.is_dirty

    def _collect_flush(self, closing: bool) -> Flush:
        contents = {each.path: each.take_unsaved() for each in (self.epochs, self.removed_deletes)}
        return Flush(
            self.files,
            {path: content for path, content in contents.items() if content is not None},
            recovery_point=self.recovery_point,
            end_offset=self.end_offset,
            truncations=self.truncations,
            closing=closing,
        )

    def finish_flush(self, flush: Flush) -> None:
        """Take note that `flush` has run without an error. After an error, call `note_unsaved` instead."""
        if flush.truncations != self.truncations:
            # The flush may have written epochs that the truncation removed.
            self.note_unsaved()
            return
        self.recovery_point = max(self.recovery_point, flush.end_offset)
        self.files.note_flushed(flush.created, flush.sealed)

    def flush(self) -> None:
        flush = self.start_flush()
        if flush is not None:
            try:
                flush.run()
            except OSError:
                self.note_unsaved()
                raise
            self.finish_flush(flush)

    def note_unsaved(self) -> None:
        """Take note that a flush may not have written the small files that it took, or old contents of them."""
        self.epochs.is_dirty = True
        self.removed_deletes.is_dirty = self.removed_deletes.before > 0

    # The end of the log, which `truncation.py` moves

    def note_cut(self, end_offset: int) -> None:
        """Take note that `files` were cut to end at `end_offset`. Nothing can be appended until `resume_appends`."""
        self._active = self.files.active
        self.end_offset = end_offset
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self.removed_deletes.truncate(end_offset)
        self._refused = f"{self} is being truncated"

    def resume_appends(self, producers: ProducerStates) -> None:
        """Take note that the cut is on disk. `producers` is the state of the producers at the new end."""
        self.producers = producers
        self._refused = self._failure

    # The start of the log, and segments that are dropped or replaced

    def advance_log_start(self, offset: int) -> bool:
        """Serve no record below `offset` any more. Their segments stay until `drop_segments`.

        Returns whether the start moved.
        """
        if offset > self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is after the end {self.end_offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def drop_segments(self, offset: int, *, in_order: bool = False) -> int:
        """Drop the segments that have no record at or after `offset`. Returns their number.

        Unless the checkpoint on disk already says that the log begins at `offset`, pass `in_order`: otherwise a power
        cut could bring back an earlier segment without a later one.
        """
        return self.files.drop_before(min(offset, self.log_start_offset), in_order=in_order)

    def end_swap(self) -> None:
        """Finish or undo a swap that an error has interrupted: its files do not have their names yet."""
        if self._failure is None:
            self.files.end_swap()

    # Ending

    def close(self) -> None:
        """Write and sync everything, so that the next `open_log` may be `clean`."""
        flush = self.start_close()
        if flush is not None:
            flush.run()
        self.finish_close(flush)

    def start_close(self) -> Flush | None:
        """Write indexes and the producer snapshot. Returns what has to be synced before `finish_close`.

        Returns None if nothing changed since the log was opened.
        """
        files = self.files
        if self._failure is None:
            self._active.repair()
        unchanged = self._clean_end == self.end_offset and not self.truncations
        is_saved = self.epochs.is_as_loaded(self.end_offset) and not self.removed_deletes.is_dirty
        if unchanged and is_saved and not files.has_unsynced_names:
            return None
        if self._failure is not None:
            return None
        self._active.write_indexes()
        files.take_snapshot(self.end_offset, self.producers)
        files.prune_snapshots()
        return self._collect_flush(closing=True)

    def finish_close(self, flush: Flush | None) -> None:
        """Close all files. `flush`, if there was one, has run without an error."""
        if flush is not None:
            self.finish_flush(flush)
        if self._failure is None:
            self.files.take_deleted().run()
        self.files.close()

    def abandon(self) -> None:
        """Close the files without flushing: the directory is about to be renamed and removed."""
        for file in self.release():
            file.close()

    def release(self) -> list[File]:
        """Like `abandon`, but leaves the files open: answers may still be read from them. The caller closes them.

        The log itself cannot be read any more. Files that are not open yet would be looked for in vain, or another log
        has its own there by now.
        """
        self.fail("the log was abandoned")
        self._is_abandoned = True
        self.on_disk_failure = None
        return [file for segment in self.segments if (file := segment.release()) is not None]
