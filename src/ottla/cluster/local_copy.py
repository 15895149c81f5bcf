"""Every broker's own copy of the shared metadata log, in the format of the embedded log.

The copy is written behind the replay: it may lack the last entries after a crash. It has two uses. A broker finds out
that the store was emptied or restored from an old copy, and refuses to follow it. And a store that was lost is written
again from the newest copy (`restore.py`), instead of losing every topic.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.cluster.encoding import encode
from ottla.cluster.image import Image
from ottla.cluster.metadata_files import (
    DamagedMetadata,
    encode_entry,
    read_entries,
    recover,
    remove_covered,
    write_snapshot,
)
from ottla.cluster.metadata_log import Entry, LogBehind, replay_entries
from ottla.storage.disk_errors import is_failure
from ottla.storage.files import Disk
from ottla.storage.flush import sync
from ottla.storage.names import LOG, path
from ottla.system.clock import Clock
from ottla.system.threads import Offload

DIRECTORY = "metadata-copy"
SNAPSHOT_BYTES = 4 << 20
IDS_KEPT = 1000
"""How many of the last entries are compared with those of the store."""

RETRY_S = 1.0
"""Seconds until the copy is begun anew after a shortage."""

logger = logging.getLogger(__name__)


class LocalCopy:
    """The copy in one data directory. Give `add` to `Metadata.on_entry`."""

    def __init__(
        self,
        disk: Disk,
        data_directory: str,
        offload: Offload,
        clock: Clock,
        image: Callable[[], Image],
        snapshot_bytes: int = SNAPSHOT_BYTES,
    ) -> None:
        """Opens the copy. A damaged one is begun again: the store has everything."""
        self._disk = disk
        self._directory = f"{data_directory}/{DIRECTORY}"
        self._offload = offload
        self._clock = clock
        self._image = image
        self._snapshot_bytes = snapshot_bytes
        self._segment: int | None = None
        self._bytes = 0
        self._ids: dict[int, bytes] = {}
        self._pending: list[Entry] = []
        self._task: asyncio.Task[None] | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._has_gap = False
        """Whether entries could not be written."""
        self._is_closed = False
        disk.make_directory(self._directory)
        try:
            self._head = self._open()
        except DamagedMetadata as error:
            logger.warning("the copy of the metadata is begun again: %s", error)
            for name in disk.list(self._directory):
                disk.unlink(f"{self._directory}/{name}")
            self._head = 0

    def _open(self) -> int:
        recovered = recover(self._disk, self._directory)
        self._segment, self._bytes = recovered.active, recovered.bytes_since_snapshot
        last = read_entries(self._disk, self._directory, max(recovered.head - IDS_KEPT, 0), recovered.head)
        self._ids = {entry.version: entry.id for entry in last if not entry.snapshot}
        return recovered.head

    @property
    def head(self) -> int:
        """The newest version in the copy: this broker has applied it."""
        return self._head

    def add(self, entry: Entry) -> None:
        """Have an entry written soon. LogBehind if the copy has another entry of that version."""
        known = self._ids.get(entry.version)
        if known is not None and not entry.snapshot and known != entry.id:
            message = (
                f"entry {entry.version} of the metadata in the store is not the one that this broker has applied: "
                f"zookeeper.connect names another cluster, or its store was restored from an old copy and went on "
                f"without this broker"
            )
            raise LogBehind(message)
        if entry.version <= self._head or self._is_closed:
            return
        self._head = entry.version
        if not entry.snapshot:
            self._ids[entry.version] = entry.id
            self._ids.pop(entry.version - IDS_KEPT, None)
        self._pending.append(entry)
        if self._task is None and self._resume is None:
            self._start_writing()

    async def close(self) -> None:
        """Write what is left, if there is room for it."""
        self._is_closed = True
        if self._resume is not None:
            self._resume.cancel()
            self._start_writing()
        while self._task is not None:
            await asyncio.wait([self._task])

    def abandon(self) -> None:
        self._is_closed = True
        if self._resume is not None:
            self._resume.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _write(self) -> None:
        try:
            while self._pending or self._has_gap:
                entries, self._pending = self._pending, []
                image = self._image()
                await self._offload(self._write_entries, entries, image)
        except OSError as error:
            logger.warning("%s: the copy of the metadata cannot be written: %s", self._directory, error)
            self._has_gap = True  # the next image has what is missing
            if is_failure(error):  # the next start begins it again
                self._is_closed = True
            elif not self._is_closed:
                self._resume = asyncio.get_running_loop().call_later(RETRY_S, self._start_writing)
        finally:
            self._task = None

    def _start_writing(self) -> None:
        self._resume = None
        self._task = asyncio.get_running_loop().create_task(self._write(), name="copy of the metadata")

    def _write_entries(self, entries: list[Entry], image: Image) -> None:
        """Append entries, in a thread. A snapshot among them starts the copy anew from there.

        A copy with a gap is worth nothing. So after a shortage it is begun anew, with a snapshot of the image.
        """
        if self._has_gap:
            write_snapshot(self._disk, self._directory, image.version, image.snapshot(), self._clock.now_ms())
            self._segment, self._bytes, self._has_gap = None, 0, False
            entries = [entry for entry in entries if entry.version > image.version]
        if not entries:
            return
        batch = bytearray()
        first = entries[0].version
        for entry in entries:
            if entry.snapshot:
                self._append(batch, first)
                write_snapshot(self._disk, self._directory, entry.version, entry.changes, self._clock.now_ms())
                self._segment, self._bytes = None, 0
                batch, first = bytearray(), entry.version + 1
            else:
                batch += encode_entry(entry.version, entry.id, encode(entry.changes), self._clock.now_ms())
        self._append(batch, first)
        if self._bytes >= self._snapshot_bytes and image.version == entries[-1].version:
            write_snapshot(self._disk, self._directory, image.version, image.snapshot(), self._clock.now_ms())
            self._segment, self._bytes = None, 0
            remove_covered(self._disk, self._directory)

    def _append(self, batch: bytearray, first: int) -> None:
        if not batch:
            return
        created = self._segment is None
        segment = first if self._segment is None else self._segment
        file = self._disk.open(path(self._directory, segment, LOG), create=created)
        try:
            if created and file.size:  # what an attempt has left for which there was no room
                file.truncate(0)
            file.append(batch)
            sync(file)
        finally:
            file.close()
        if created:
            self._disk.fsync_directory(self._directory)
        self._segment = segment
        self._bytes += len(batch)


class NoCopy(DamagedMetadata):
    """A data directory has no copy of the metadata, or one without an entry: its broker has never been in a cluster."""


def read_copy(disk: Disk, data_directory: str) -> Image:
    """The newest image in the copy of a data directory. DamagedMetadata if it cannot be read, NoCopy without one."""
    directory = f"{data_directory}/{DIRECTORY}"
    if not disk.exists(directory):
        raise NoCopy(f"{data_directory} has no copy of the metadata of a cluster")
    image = replay_entries(read_entries(disk, directory, 0, recover(disk, directory).head))
    if image.cluster_id is None:
        raise NoCopy(f"{directory} is empty")
    return image
