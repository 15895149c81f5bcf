"""State of one store and partition in RocksDB, together with how far it has come.

Each table is a database in a directory of its own, so that it can be removed and restored alone; opening one takes 5 ms
and costs a quarter of a megabyte. All tables of a process share a block cache and a limit for what is not yet written
to files. There is no write-ahead log: the changelog is one. RocksDB writes its tables to files in the order in which
they were filled, so after a crash a table holds everything up to the progress that it remembers, and nothing else.

    directory     lock, and the database in a directory that is named by its generation: a wipe begins a new one
    key           P for the progress, D and the key for a value
    progress      a JSON object: topic id, position, and the time at which the table was complete
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from threading import Lock
from typing import Any, Final

import orjson
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from ottla.streams.errors import StreamsError

MEMORY_MB: Final = 96
"""The block cache of a server, what is not yet written to files included."""

COUNTED_MAX: Final = 1_000
"""Up to how many keys of a table are counted one by one, which takes less than a millisecond."""

_PROGRESS: Final = b"P"
_DATA: Final = b"D"
_AFTER_DATA: Final = b"E"
_MEASURES: Final = ("rocksdb.estimate-num-keys", "rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
_WRITE_BUFFER_BYTES: Final = 16 * 1024 * 1024


class TableLocked(StreamsError):
    """Another process has the directory of a table open."""


class TableClosed(StreamsError):
    """The table was closed or is being restored from the beginning."""


@dataclass(frozen=True)
class TableProgress:
    """How far a table has come in its topic."""

    topic_id: str
    position: int
    """The offset after the last record that was applied."""
    complete_ms: int
    """The last time at which the table is known to have held every record of its topic, or when its restore began.
    Tombstones that were written later are still in the topic for delete.retention.ms after it."""
    form: str = ""
    """What the values were made with, if they are not those of the topic: see `ChangeReader.form`."""


class TableMemory:
    """The memory that all tables of a process share."""

    def __init__(self, megabytes: int = MEMORY_MB) -> None:
        size = megabytes * 1024 * 1024
        self._cache = Cache(size)
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(size // 3, False, self._cache)

    @property
    def used_bytes(self) -> int:
        return self._cache.get_usage()

    def open_database(self, path: str) -> Rdict:
        """Opens or makes a database. rocksdict would open an existing one with the default options of a column family,
        and so with a cache of its own, unless it is told those as well."""
        options = self._make_options()
        return Rdict(path, options, {"default": options})

    def _make_options(self) -> Options:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_bloom_filter(10, False)
        blocks.set_format_version(5)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_keep_log_file_num(1)
        options.set_max_open_files(128)
        return options


class Table:
    """The database of one store and partition. One thread at a time may write; any number may read meanwhile."""

    def __init__(self, directory: str, memory: TableMemory) -> None:
        """Opens the table below `directory`, or makes an empty one. TableLocked if another process has it open."""
        self._directory = directory
        self._memory = memory
        os.makedirs(directory, exist_ok=True)
        self._lock = _lock(os.path.join(directory, "lock"))
        self._closing = Lock()
        """Held while the database is closed, which another thread may be measuring: it refuses both at once."""
        self._without_log = WriteOptions()
        self._without_log.disable_wal = True  # type: ignore[method-assign, assignment]  # its stub is wrong
        try:
            self._generation = self._remove_old_generations()
            self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def _remove_old_generations(self) -> int:
        """The newest generation. Others are what a crash has left of a wipe."""
        found = sorted(int(name) for name in os.listdir(self._directory) if name.isdecimal())
        for generation in found[:-1]:
            shutil.rmtree(os.path.join(self._directory, str(generation)), ignore_errors=True)
        return found[-1] if found else 0

    def _open(self) -> None:
        path = os.path.join(self._directory, str(self._generation))
        try:
            self._database = self._memory.open_database(path)
        except Exception:  # rocksdict raises Exception itself; whatever is wrong with the files, the changelog is not
            shutil.rmtree(path, ignore_errors=True)
            self._database = self._memory.open_database(path)
        stored = self._database.get(_PROGRESS)
        self._progress = None if stored is None else TableProgress(**orjson.loads(stored))

    @property
    def progress(self) -> TableProgress | None:
        """None for a table that holds nothing yet."""
        return self._progress

    def close(self) -> None:
        """Writes everything to files and closes the table."""
        self._database.flush()
        with self._closing:
            self._database.close()
        os.close(self._lock)

    def wipe(self) -> None:
        """Removes everything. Those who are reading may read on: an iterator keeps the files of its generation."""
        old = os.path.join(self._directory, str(self._generation))
        with self._closing:
            self._database.close()
        self._generation += 1
        self._open()
        shutil.rmtree(old, ignore_errors=True)

    def measure(self) -> tuple[int, int]:
        """How many keys the table has, and its bytes in files and in memory. None of both while it is closed.

        Keys are counted up to COUNTED_MAX. Above that they are RocksDB's estimate, which counts what was written: also
        a key that was written again, and the progress, until RocksDB merges its files.
        """
        try:
            with self._closing:
                estimate, *sizes = (self._database.property_int_value(name) or 0 for name in _MEASURES)
                keys: Iterator[Any] = self._database.keys(from_key=_DATA)
                counted = sum(1 for _ in takewhile(lambda key: key < _AFTER_DATA, islice(keys, COUNTED_MAX + 1)))
        except DbClosedError:
            return 0, 0
        return counted if counted <= COUNTED_MAX else max(estimate, counted), sum(sizes)

    def flush(self) -> None:
        """Writes everything to files, so that a crash from here on loses only what comes later."""
        self._database.flush()

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]], progress: TableProgress) -> None:
        """Writes values (None deletes the key) and how far the table has come with them, all or nothing."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(_DATA + key)
            else:
                batch[_DATA + key] = value
        batch[_PROGRESS] = orjson.dumps(asdict(progress))
        self._database.write(batch, self._without_log)
        self._progress = progress

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys.

        An iterator that goes through the sorted keys finds them three to four times as fast as RocksDB's multi-get: it
        keeps the block that it is in, and to decompress a block costs more than everything else.
        """
        found: dict[bytes, bytes | None] = {}
        try:
            cursor = self._database.iter()
            for key in sorted(set(keys)):
                stored = _DATA + key
                cursor.seek(stored)
                found[key] = cursor.value() if cursor.key() == stored else None
        except DbClosedError:
            raise TableClosed("the table was closed") from None
        return [found[key] for key in keys]

    def range(
        self, start: bytes, end: bytes | None, *, is_reversed: bool = False, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on and before `end` (None: up to the last), with their values, in order. What is written
        while the caller iterates is not seen."""
        first, after = _DATA + start, _AFTER_DATA if end is None else _DATA + end
        if first >= after:
            return
        try:
            items: Iterator[tuple[Any, Any]] = self._database.items(
                backwards=is_reversed, from_key=after if is_reversed else first
            )
        except DbClosedError:
            raise TableClosed("the table was closed") from None
        inside = takewhile(lambda item: item[0] >= first if is_reversed else item[0] < after, items)
        for key, value in islice((item for item in inside if item[0] != after), limit):
            yield key[1:], value


def _lock(path: str) -> int:
    """The descriptor of a file that this process alone holds. The kernel gives it free when the process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise TableLocked(f"{path}: another process has this state open; is an older state server running?") from None
    return descriptor
