"""A segment: one file of batches and its indexes.

The `.log` file is batches one after the other and nothing else. The last segment of a log is the active one: batches
are appended to it, its offset and time index live in memory and are written when it is sealed or the log is closed. A
sealed segment never grows; its size and indexes are read when somebody needs them, and may be forgotten again.
"""

import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import BatchHeader, CorruptBatch
from ottla.storage import names
from ottla.storage.disk_errors import describe_error, is_failure
from ottla.storage.files import Bytes, Disk, File
from ottla.storage.index import (
    OFFSET_ENTRY_SIZE,
    TIME_ENTRY_SIZE,
    CorruptIndex,
    IndexCache,
    OffsetIndex,
    TimeIndex,
    last_offset_entry,
    last_time_entry,
)
from ottla.storage.scan import BatchLocation, Damage, find_batch, find_first_header, scan, scan_around
from ottla.storage.transaction_index import TransactionIndex

logger = logging.getLogger(__name__)

UNKNOWN = -2
"""A timestamp that has not been read yet. It is not -1, because a record can have that timestamp."""

_TAIL_MAX = 64
_UNINDEXED_MAX = 1024 * 1024
"""A larger segment has at least one entry in its offset index. An empty index file of one has lost its content."""


class Segment:
    __slots__ = (
        "_cache",
        "_disk",
        "_ending",
        "_file",
        "_first_timestamp",
        "_is_torn",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_rebuilt",
        "_since_entry",
        "_size",
        "_tail_offsets",
        "_tail_positions",
        "_times",
        "_transactions",
        "_writer",
        "base_offset",
        "created_ms",
        "damage",
        "directory",
        "index_bytes",
        "index_interval_bytes",
        "is_active",
        "is_suspect",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, created_ms: int, interval: int, cache: IndexCache
    ) -> None:
        """A segment that is on disk; nothing is read yet."""
        self._disk = disk
        self._cache = cache
        self._ending = ""
        self._file: File | None = None
        self._writer: File | None = None
        """The file, from the first append on. From then on the indexes stay in memory."""
        self._size = UNKNOWN
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._transactions: TransactionIndex | None = None
        self._first_timestamp = self._max_timestamp = UNKNOWN
        self._max_timestamp_offset = base_offset
        self._since_entry = 0
        self._rebuilt = False
        self._is_torn = False
        """Whether the file may have bytes of a failed append behind its last batch."""
        self._tail_offsets = array("q")
        self._tail_positions = array("q")
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.index_interval_bytes = interval
        self.index_bytes = 0
        """How large the larger index would be after the next entry. The log rolls when this exceeds the limit."""
        self.is_active = False
        self.is_suspect = False
        """Whether an index file is missing: then the transaction index is not trusted either."""
        self.damage: tuple[Damage, ...] = ()

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        interval: int,
        cache: IndexCache,
        may_have_indexes: bool = True,
    ) -> "Segment":
        """A new, empty, active segment. Its directory entry is durable after the next flush of the log.

        `may_have_indexes`: index files of an earlier segment at this offset may be there, and are deleted.
        """
        segment = cls(disk, directory, base_offset, created_ms=created_ms, interval=interval, cache=cache)
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX) if may_have_indexes else ():
            if disk.exists(segment.path(suffix)):
                disk.unlink(segment.path(suffix))
        segment._file = segment._writer = disk.open(segment.path(names.LOG), create=True)
        if segment._file.size:
            segment._file.truncate(0)
        segment.is_active = True
        segment.forget()
        return segment

    @classmethod
    def begin(
        cls, disk: Disk, directory: str, base_offset: int, *, created_ms: int, interval: int, cache: IndexCache
    ) -> "Segment":
        """A new, empty, active segment. Its file has to be there before the first append."""
        segment = cls(disk, directory, base_offset, created_ms=created_ms, interval=interval, cache=cache)
        segment._transactions = TransactionIndex(disk, segment.path(names.TRANSACTION_INDEX), [])
        segment.is_active = True
        segment.forget()
        return segment

    @classmethod
    def under(
        cls,
        ending: str,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        interval: int,
        cache: IndexCache,
    ) -> "Segment":
        """A sealed segment whose files have another ending, until `take_final_name`."""
        segment = cls(disk, directory, base_offset, created_ms=created_ms, interval=interval, cache=cache)
        segment._ending = ending
        segment._file = disk.open(segment.path(names.LOG))
        segment._size = segment._file.size
        return segment

    def open_again(self, disk: Disk, cache: IndexCache) -> "Segment":
        """The same segment for a reader in another thread. It has no memory in common with this one."""
        copy = Segment(
            disk,
            self.directory,
            self.base_offset,
            created_ms=self.created_ms,
            interval=self.index_interval_bytes,
            cache=cache,
        )
        copy.is_active = True  # indexes that it has to build are not written to the disk
        return copy

    def forget(self) -> None:
        """Reset indexes, size and timestamps in memory, so that recovery can count every batch again."""
        self._size = self._since_entry = 0
        self._offsets, self._times = OffsetIndex(), TimeIndex()
        self._first_timestamp = UNKNOWN
        self._max_timestamp, self._max_timestamp_offset = -1, self.base_offset
        self.damage = ()
        del self._tail_offsets[:], self._tail_positions[:]

    def __repr__(self) -> str:
        return self.path(names.LOG)

    def path(self, suffix: str) -> str:
        return names.path(self.directory, self.base_offset, suffix + self._ending)

    def take_final_name(self) -> None:
        """The files were renamed: they have no other ending any more."""
        self._ending = ""
        if self._file is not None:
            self._file.path = self.path(names.LOG)

    # What it is

    @property
    def index_names(self) -> tuple[str, str]:
        return f"{self.base_offset:020d}{names.OFFSET_INDEX}", f"{self.base_offset:020d}{names.TIME_INDEX}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path(names.LOG))
        return self._file

    @property
    def open_file(self) -> File | None:
        """The file if it is open already."""
        return self._file

    @property
    def size(self) -> int:
        if self._size == UNKNOWN:
            self._size = self._disk.size(self.path(names.LOG))
        return self._size

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a record; -1 if there is none."""
        return self.max_timestamp_entry[0]

    @property
    def max_timestamp_entry(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the first batch that has it."""
        if self._max_timestamp == UNKNOWN:
            self._read_max_timestamp()
            if not self.is_active and not self._has_right_max_timestamp():
                logger.warning("%s: the time index is wrong, it is rebuilt", self)
                self.rebuild_indexes()
        return self._max_timestamp, self._max_timestamp_offset

    def _read_max_timestamp(self) -> None:
        entry = self._read_last_entry(names.TIME_INDEX, TIME_ENTRY_SIZE)
        if entry is not None:
            timestamp, relative_offset = last_time_entry(entry)
            self._max_timestamp, self._max_timestamp_offset = timestamp, self.base_offset + relative_offset
        elif self.size:
            self.rebuild_indexes()
        else:
            self._max_timestamp = -1

    def _has_right_max_timestamp(self) -> bool:
        """Whether the batch in the last entry of the time index has the timestamp of that entry."""
        if self._max_timestamp < 0:
            return True
        with suppress(KafkaError):
            location = self.locate(self._max_timestamp_offset)
            if location is not None:
                header = next(scan(self.file, location.position, self.size))[1]
                return (header.max_timestamp, header.last_offset) == (self._max_timestamp, self._max_timestamp_offset)
        return False

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp in the first sound batch, from which the segment's age counts. -1 if there is none."""
        if self._first_timestamp == UNKNOWN:
            if not self.size:
                return -1
            header = find_first_header(self.file, self.size, self.damage)
            self._first_timestamp = -1 if header is None else header.max_timestamp
        return self._first_timestamp

    @property
    def transactions(self) -> TransactionIndex:
        if self._transactions is None:
            self._transactions = TransactionIndex(self._disk, self.path(names.TRANSACTION_INDEX))
        return self._transactions

    @property
    def has_aborts(self) -> bool:
        """Whether entries of the transaction index are in memory. They may not be on the disk yet."""
        return self._transactions is not None and bool(self._transactions.entries())

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offsets is None:
            self._load_offset_index()
        elif not self.is_active:
            self._cache.touch(self)
        assert self._offsets is not None
        return self._offsets

    @property
    def time_index(self) -> TimeIndex:
        if self._times is None:
            self._load_time_index()
        elif not self.is_active:
            self._cache.touch(self)
        assert self._times is not None
        return self._times

    # Appending

    def append(self, data: Bytes, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Append one batch. An OSError may leave part of it in the file; nothing else has changed then."""
        (self._writer or self._activate()).append(data)
        self.count(size, base_offset, last_offset, max_timestamp)

    def count(self, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Count a batch that was written to the end of the file: size, timestamps, indexes."""
        position = self._size
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if not position:
            self._first_timestamp = max_timestamp
        if self._since_entry > self.index_interval_bytes:
            self._add_index_entry(last_offset, position)
        self._since_entry += size
        tail = self._tail_offsets
        tail.append(base_offset)
        self._tail_positions.append(position)
        if len(tail) > _TAIL_MAX:
            del tail[: _TAIL_MAX // 2], self._tail_positions[: _TAIL_MAX // 2]
        self._size = position + size

    def skip_to(self, position: int) -> None:
        """Continue counting behind damaged bytes, which recovery leaves where they are."""
        self._size = position
        # The tail takes a batch to end where the next one begins, which is not so across damaged bytes.
        del self._tail_offsets[:], self._tail_positions[:]

    def write(self, data: Bytes) -> None:
        """Append several batches in one write. The caller then calls `count` for each."""
        (self._writer or self._activate()).append(data)

    def undo(self, offset: int) -> None:
        """Take back a failed append at `offset`. If an OSError prevents it, the next append does it first."""
        self._is_torn, self._writer = True, None
        if self._transactions is not None and self._transactions.is_loaded:
            self._transactions.forget_from(offset)
        self.repair()

    def repair(self) -> None:
        """Cut off what failed appends may have left in the files."""
        if self._is_torn:
            self.file.truncate(self.size)
            self.transactions.repair()
            self._is_torn = False

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        self.offset_index.add(last_offset - self.base_offset, position)
        self.time_index.add(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
        self._since_entry = 0
        self._measure_indexes()

    def _measure_indexes(self) -> None:
        # Two more entries must fit: the next one, and the one that sealing adds.
        self.index_bytes = max(
            (len(self.offset_index) + 1) * OFFSET_ENTRY_SIZE, (len(self.time_index) + 2) * TIME_ENTRY_SIZE
        )

    def _activate(self) -> File:
        """Before the first append, and the first after a failed one: load the indexes, which then stay in memory."""
        self.repair()
        self.is_active = True
        self._cache.forget(self)
        if self._max_timestamp == UNKNOWN or self._offsets is None or self._times is None:
            self._max_timestamp, self._max_timestamp_offset = self.max_timestamp_entry
            self._offsets, self._times = self.offset_index, self.time_index
        self._measure_indexes()
        self._writer = self.file
        return self._writer

    # Finding

    def locate(self, offset: int) -> BatchLocation | None:
        """Find the first batch that ends at or after `offset`; None if there is none."""
        tail = self._tail_offsets
        if tail and offset >= tail[0]:
            entry = bisect_right(tail, offset) - 1
            position = self._tail_positions[entry]
            if tail[entry] == offset:
                following = entry + 1
                end = self._tail_positions[following] if following < len(tail) else self._size
                return BatchLocation(offset, position, end - position)
            return self._step_to(offset, position)
        position = self.offset_index.position_before(offset - self.base_offset)
        try:
            return self._step_to(offset, position)
        except KafkaError:
            if not position or self._rebuilt:
                raise
        logger.warning("%s: the offset index is wrong, it is rebuilt", self)
        self.rebuild_indexes()
        return self._step_to(offset, self.offset_index.position_before(offset - self.base_offset))

    def _step_to(self, offset: int, position: int) -> BatchLocation | None:
        try:
            return find_batch(self.file, position, self.size, offset, self.damage)
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self}: {error}") from None

    def readable_end(self, position: int) -> int:
        """Up to which byte a read from `position` on may go: to the next damage, or to the end of the file."""
        return min((damage.position for damage in self.damage if damage.position > position), default=self.size)

    # Ending

    def seal(self) -> None:
        """End appends. The indexes are on disk and may be unloaded when memory is short."""
        self.is_active = False
        self._writer = None
        del self._tail_offsets[:], self._tail_positions[:]
        self._admit_indexes()

    def write_indexes(self) -> None:
        """Write both index files from memory, with the largest timestamp as the last entry of the time index."""
        offsets, times = self.offset_index, self.time_index
        times.add(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
        for suffix, data in ((names.OFFSET_INDEX, offsets.encode()), (names.TIME_INDEX, times.encode())):
            file = self._disk.open(self.path(suffix), create=True)
            try:
                file.truncate(0)
                if data:
                    file.append(data)
            finally:
                file.close()

    def cut(self, offset: int) -> BatchLocation | None:
        """Forget the batch that contains `offset` and all later ones. Returns the first of them, None if there is none.

        The files keep their bytes until `Truncation.run`, and nothing may be appended before that. If there is no
        descriptor, or no room for a repair, nothing has changed after the OSError.
        """
        file = self.file
        file.pin()
        try:
            self.repair()
            _ = self.max_timestamp_entry, self.offset_index, self.time_index
            return self._cut(self._find_first_to_go(offset))
        finally:
            file.unpin()

    def _cut(self, location: BatchLocation | None) -> BatchLocation | None:
        self._activate()
        if location is None:
            return None
        relative_offset = location.base_offset - self.base_offset
        self.offset_index.truncate(relative_offset)
        self.time_index.truncate(relative_offset)
        self.damage = tuple(damage for damage in self.damage if damage.end <= location.position)
        self._size, self._since_entry = location.position, 0
        del self._tail_offsets[:], self._tail_positions[:]
        if not location.position:
            self.forget()
        elif self._max_timestamp_offset >= location.base_offset:
            self._find_max_timestamp()
        return location

    def truncate_transactions(self, offset: int) -> None:
        """Remove transactions whose marker is at `offset` or later from the index."""
        try:
            self.transactions.truncate(offset)
        except CorruptIndex:
            self.transactions.replace([])
            self.is_suspect = True

    def _find_first_to_go(self, offset: int) -> BatchLocation | None:
        for damage in self.damage:
            if damage.first_offset <= offset < damage.next_offset:
                return BatchLocation(damage.first_offset, damage.position, damage.end - damage.position)
        return self.locate(offset)

    def _find_max_timestamp(self) -> None:
        """Find the largest timestamp after a truncation: from the last index entry and the batches behind it."""
        times = self.time_index
        timestamp, relative_offset = (times.timestamps[-1], times.offsets[-1]) if len(times) else (-1, 0)
        self._max_timestamp, self._max_timestamp_offset = timestamp, self.base_offset + relative_offset
        start = self.offset_index.position_before(relative_offset)
        for _, header in self._scan_sound(start, self._size):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset

    def close(self) -> None:
        if (file := self.release()) is not None:
            file.close()

    def release(self) -> File | None:
        """End the use of the segment, but leave its file open. Returns that, if it is open; the caller closes it."""
        file, self._file, self._writer = self._file, None, None
        self._cache.forget(self)
        return file

    # Indexes from disk

    def resume(self) -> int:
        """Make a cleanly closed segment the active one. Returns the log's end offset.

        Only the batches behind the last index entry are read. CorruptBatch or CorruptIndex if something is not as a
        clean close leaves it.
        """
        if not self.size:
            self.forget()
            self.is_active = True
            return self.base_offset
        entry = self._read_last_entry(names.OFFSET_INDEX, OFFSET_ENTRY_SIZE)
        if entry is None and self.is_suspect:
            raise CorruptIndex(f"{self} has no indexes")
        relative_offset, position = last_offset_entry(entry) if entry is not None else (None, 0)
        end = self.base_offset
        self._read_max_timestamp()
        max_timestamp = self._max_timestamp
        if not 0 <= position < self.size or (not position and self.size > _UNINDEXED_MAX):
            raise CorruptIndex(f"the last entry of {self}'s offset index points to byte {position}")
        file = self._disk.open_read(self.path(names.LOG))
        try:
            for batch_position, header in scan(file, position, self.size, checked=True):
                if header.base_offset < end or header.max_timestamp > max_timestamp:
                    raise CorruptIndex(f"{self} goes on after its indexes end")
                if batch_position == position and relative_offset not in (None, header.last_offset - self.base_offset):
                    raise CorruptIndex(f"the offset index of {self} is of another segment")
                end = header.next_offset
                self._tail_offsets.append(header.base_offset)
                self._tail_positions.append(batch_position)
        finally:
            file.close()
        del self._tail_offsets[:-_TAIL_MAX], self._tail_positions[:-_TAIL_MAX]
        self.is_active = True
        return end

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batches' headers. Those of a sealed segment are also written to disk."""
        fresh = self.open_again(self._disk, self._cache)  # an error of the disk leaves this one as it is
        fresh.forget()
        for position, header in self._scan_sound(0, self.size):
            fresh._size = position
            fresh.count_header(header)
        self._cache.forget(self)
        self._offsets, self._times, self._since_entry = fresh._offsets, fresh._times, fresh._since_entry
        self._first_timestamp = fresh._first_timestamp
        self._max_timestamp, self._max_timestamp_offset = fresh._max_timestamp, fresh._max_timestamp_offset
        self._rebuilt = True
        if not self.is_active:
            self._keep_indexes()

    def _scan_sound(self, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from position `start` on, around known damage, up to damage of which nobody knew."""
        try:
            yield from scan_around(self.file, start, end, self.damage)
        except CorruptBatch as error:
            logger.error("%s is damaged: %s", self, error)

    def _keep_indexes(self) -> None:
        """Write the rebuilt indexes of a sealed segment. Without room on the disk they stay in memory."""
        try:
            self.write_indexes()
        except OSError as error:
            if is_failure(error):
                raise
            logger.warning("%s: the rebuilt indexes are not written: %s", self, describe_error(error))
            with suppress(OSError):  # part of an index would be taken for the whole
                for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
                    self._disk.unlink(self.path(suffix))
        else:
            self._admit_indexes()

    def count_header(self, header: BatchHeader) -> None:
        self.count(header.size, header.base_offset, header.last_offset, header.max_timestamp)

    def unload_indexes(self) -> None:
        if not self.is_active:
            self._offsets = self._times = None

    def _admit_indexes(self) -> None:
        size = len(self.offset_index) * OFFSET_ENTRY_SIZE + len(self.time_index) * TIME_ENTRY_SIZE
        self._cache.forget(self)
        self._cache.admit(self, size)

    def _load_offset_index(self) -> None:
        with suppress(FileNotFoundError, CorruptIndex):
            data = self._disk.read(self.path(names.OFFSET_INDEX))
            if data or self.size <= _UNINDEXED_MAX:
                self._offsets = OffsetIndex.decode(data)
                if not self.is_active:
                    self._cache.admit(self, len(data))
                return
        self.rebuild_indexes()

    def _load_time_index(self) -> None:
        with suppress(FileNotFoundError, CorruptIndex):
            data = self._disk.read(self.path(names.TIME_INDEX))
            self._times = TimeIndex.decode(data)
            if not self.is_active:
                self._cache.admit(self, len(data))
            return
        self.rebuild_indexes()

    def _read_last_entry(self, suffix: str, entry_size: int) -> bytes | None:
        """Read the last entry of an index file; None if there is none, or the size of the file is wrong."""
        try:
            file = self._disk.open_read(self.path(suffix))
        except FileNotFoundError:
            return None
        try:
            size = file.size
            return file.read_at(size - entry_size, entry_size) if size and not size % entry_size else None
        finally:
            file.close()
