"""The metadata log of a cluster of one broker: files in the data directory. An entry counts once it is fsynced.

It implements the same protocol (`MetadataLog`) as a log that several brokers share, so a single broker runs the code
of a cluster.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla.cluster.changes import Change
from ottla.cluster.encoding import encode
from ottla.cluster.image import Image
from ottla.cluster.metadata_files import encode_entry, read_entries, recover, remove_covered, write_snapshot
from ottla.cluster.metadata_log import Conflict, Entry
from ottla.errors import ErrorCode, KafkaError
from ottla.storage.disk_errors import is_failure
from ottla.storage.files import Disk, File
from ottla.storage.flush import sync
from ottla.storage.names import LOG, path
from ottla.system.clock import Clock
from ottla.system.threads import Offload

DIRECTORY = "__cluster_metadata-0"
SNAPSHOT_BYTES = 4 << 20
RETRY_S = 1.0
"""Seconds until an fsync is tried again for which there was no descriptor."""

logger = logging.getLogger(__name__)


class EmbeddedLog:
    """A `MetadataLog` in one directory. `Metadata` makes sure that one append runs at a time."""

    is_shared = False
    obstacle = ""

    def __init__(
        self,
        disk: Disk,
        data_directory: str,
        offload: Offload,
        clock: Clock,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        on_failure: Callable[[str], None] | None = None,
        clean: bool = False,
    ) -> None:
        """Recovers the log. DamagedMetadata if acknowledged entries would be lost.

        `on_failure` is called when the log can take no more entries until it is opened again. `clean`: the log was
        closed before.
        """
        self._disk = disk
        self._directory = f"{data_directory}/{DIRECTORY}"
        self._offload = offload
        self._clock = clock
        self._snapshot_bytes = snapshot_bytes
        disk.make_directory(self._directory)
        recovered = recover(disk, self._directory, clean=clean)
        self._head = recovered.head
        self._bytes_since_snapshot = recovered.bytes_since_snapshot
        self._file: File | None = None
        if recovered.active is not None:
            self._file = disk.open(path(self._directory, recovered.active, LOG))
        self._must_roll = False
        """The next entry starts a segment, so that a snapshot covers whole segments and they can be removed."""
        self._torn_at: int | None = None
        """Where the file has to be cut before the next entry: a failed write may have left something behind it."""
        self._is_uncut = False
        """Whether a power cut may bring back something that a failed write has left."""
        self._is_name_durable = True
        self._flush: asyncio.Future[None] | None = None
        self._last: Entry | None = None
        self._failure: str | None = None
        self._on_failure = on_failure
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def head(self) -> int:
        """Version of the newest durable entry; 0 if there is none."""
        return self._head

    async def append(
        self, expected_version: int, entry_id: bytes, changes: Sequence[Change], *, as_controller: bool = False
    ) -> int:
        await self._settle()
        if expected_version != self._head:
            raise Conflict(f"the head is {self._head}, not {expected_version}")
        entry = Entry(expected_version + 1, entry_id, tuple(changes))
        self._start(entry)
        await self._settle()
        return entry.version

    async def read(self, after: int, *, newest: bool = True) -> Sequence[Entry]:
        await self._settle()
        if after >= self._head:
            return ()
        if self._last is not None and self._last.version == self._head == after + 1:
            return (self._last,)
        return await self._offload(read_entries, self._disk, self._directory, after, self._head)

    async def wait_for_growth(self, beyond: int) -> None:
        while self._head <= beyond:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def wants_snapshot(self) -> bool:
        return self._bytes_since_snapshot >= self._snapshot_bytes

    async def save_snapshot(self, image: Image) -> None:
        """Write a snapshot. If the disk refuses it, the log just grows until the next attempt."""
        self._bytes_since_snapshot = 0
        try:
            await self._offload(self._snapshot, image)
        except OSError as error:
            logger.warning("%s: the snapshot of the metadata cannot be written: %s", self._directory, error)
            return
        self._must_roll = True

    def close(self) -> None:
        """Leave no half-written entry, not even after a power cut: a start after a clean stop takes it for damage."""
        if self._failure is None and self._file is not None and self._is_uncut:
            try:
                if self._torn_at is not None:
                    self._file.truncate(self._torn_at)
                sync(self._file)
            except OSError as error:
                self._fail(f"a half-written entry could not be removed: {error}")
        if self._file is not None:
            self._file.close()
            self._file = None
        self._failure = self._failure or "it was closed"

    def _start(self, entry: Entry) -> None:
        """Write the entry and start its fsync, which goes on even if the caller stops waiting."""
        batch = encode_entry(entry.version, entry.id, encode(entry.changes), self._clock.now_ms())
        try:
            file = self._prepare_file(entry.version)
            self._torn_at = file.size
            file.append(batch)
        except OSError as error:
            self._take_back()
            raise _make_storage_error(f"the metadata could not be written: {error}") from error
        self._torn_at = None
        self._bytes_since_snapshot += len(batch)
        self._flush = asyncio.get_running_loop().create_future()
        self._start_sync(entry, file)

    def _prepare_file(self, version: int) -> File:
        """The file for the next entry, without what an entry that was taken back may have left in it."""
        if self._file is not None and self._torn_at is not None:
            self._file.truncate(self._torn_at)
        self._torn_at = None
        if self._file is not None and self._must_roll:
            self._file.close()
            self._file = None
        self._must_roll = False
        if self._file is None:
            self._file = self._disk.open(path(self._directory, version, LOG), create=True)
            self._is_name_durable = False
        return self._file

    def _take_back(self) -> None:
        """Remove a half-written entry: the next entry would come after it and be lost at recovery.

        If there is no descriptor for that, it is done before the next entry is written.
        """
        if self._file is None or self._torn_at is None:
            return
        self._is_uncut = True
        try:
            self._file.truncate(self._torn_at)
        except OSError as error:
            if is_failure(error):
                self._fail(f"a half-written entry could not be removed: {error}")
        else:
            self._torn_at = None

    def _start_sync(self, entry: Entry, file: File) -> None:
        self._offload(self._sync, file).add_done_callback(lambda done: self._handle_sync(entry, file, done))

    def _sync(self, file: File) -> None:
        sync(file)
        if not self._is_name_durable:
            self._disk.fsync_directory(self._directory)
            self._is_name_durable = True

    def _handle_sync(self, entry: Entry, file: File, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, OSError) and not is_failure(error) and self._failure is None:
            logger.warning("%s: the fsync of an entry is tried again: %s", self._directory, error)
            asyncio.get_running_loop().call_later(RETRY_S, self._start_sync, entry, file)
            return
        flush, self._flush = self._flush, None
        if done.cancelled() or error is not None:
            # It is unknown what is on the disk, and a second fsync would not tell.
            self._fail(f"fsync failed: {error or 'cancelled'}")
        else:
            self._head = entry.version
            self._last = entry
            self._is_uncut = False
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        if flush is not None and not flush.done():
            flush.set_result(None)

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
            if self._on_failure is not None:
                self._on_failure(reason)

    async def _settle(self) -> None:
        """Wait for the entry that is being written, even if its writer has stopped waiting."""
        if self._flush is not None:
            await asyncio.wait([self._flush])
        if self._failure is not None:
            raise _make_storage_error(f"the metadata log accepts no more entries: {self._failure}; restart the broker")

    def _snapshot(self, image: Image) -> None:
        write_snapshot(self._disk, self._directory, image.version, image.snapshot(), self._clock.now_ms())
        remove_covered(self._disk, self._directory)


def _make_storage_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
