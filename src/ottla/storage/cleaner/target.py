"""The segment that a compaction writes: its files have their final names with `.cleaned` behind them."""

from ottla.records.batch import BatchHeader
from ottla.storage import names
from ottla.storage.cleaner.order import Uncleanable
from ottla.storage.files import Bytes, Disk, File
from ottla.storage.index import OffsetIndex, TimeIndex
from ottla.storage.transaction_index import AbortedTransaction, TransactionIndex

_WRITE_BYTES = 1024 * 1024
_SYNC_BYTES = 32 * 1024 * 1024
"""Syncing a gigabyte at once at the end would make every other fsync on this disk wait."""

_SIZE_MAX = 2**31 - 1
"""Positions in an offset index have 32 bits."""


class Target:
    def __init__(self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._file = self._create(names.LOG)
        self._unwritten = bytearray()
        self._offsets, self._times = OffsetIndex(), TimeIndex()
        self._max_timestamp, self._max_timestamp_offset = -1, base_offset
        self._since_entry = 0
        self._synced = 0
        self.size = 0

    def append(self, header: BatchHeader, batch: Bytes) -> None:
        if self.size + len(batch) > _SIZE_MAX:
            raise Uncleanable(f"segment {self._base_offset} would get larger than {_SIZE_MAX} bytes")
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        if self._since_entry > self._interval:
            self._offsets.add(header.last_offset - self._base_offset, self.size)
            self._times.add(self._max_timestamp, self._max_timestamp_offset - self._base_offset)
            self._since_entry = 0
        self._since_entry += len(batch)
        self.size += len(batch)
        self._unwritten += batch
        if len(self._unwritten) >= _WRITE_BYTES:
            self._write()

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Write the rest and the indexes, and sync everything, names included."""
        self._write()
        self._file.fsync()
        self._file.close()
        self._times.add(self._max_timestamp, self._max_timestamp_offset - self._base_offset)
        self._write_index(names.OFFSET_INDEX, self._offsets.encode())
        self._write_index(names.TIME_INDEX, self._times.encode())
        if aborted:
            index = TransactionIndex(self._disk, self._make_path(names.TRANSACTION_INDEX))
            index.replace(sorted(aborted, key=lambda transaction: transaction.last_offset))
            file = self._disk.open(index.path)
            file.fsync()
            file.close()
        self._disk.fsync_directory(self._directory)

    def discard(self) -> None:
        """Close the file after an error. What was written of it is deleted by the caller or the next start."""
        self._file.close()

    def _write(self) -> None:
        if self._unwritten:
            self._file.append(self._unwritten)
            self._unwritten = bytearray()
        if self.size - self._synced >= _SYNC_BYTES:
            self._file.fsync()
            self._synced = self.size

    def _write_index(self, suffix: str, data: bytes) -> None:
        file = self._create(suffix)
        if data:
            file.append(data)
        file.fsync()
        file.close()

    def _create(self, suffix: str) -> File:
        file = self._disk.open(self._make_path(suffix), create=True)
        if file.size:
            file.truncate(0)
        return file

    def _make_path(self, suffix: str) -> str:
        return names.path(self._directory, self._base_offset, suffix + names.CLEANED)
