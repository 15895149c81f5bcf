"""Every broker's own copy of the shared metadata log, in the format of the embedded log.

The copy is written behind the replay: it may lack the last entries after a crash. It has two uses. A broker finds out
that the store was emptied or restored from an old copy, and refuses to follow it. And a store that was lost is written
again from the newest copy (`ottla cluster restore`), instead of losing every topic.
"""

import asyncio
import logging
from collections.abc import Callable

from ottla.cluster import znodes
from ottla.cluster.broker_ids import keep_broker_ids
from ottla.cluster.changes import encode
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.metadata_files import (
    DamagedMetadata,
    encode_entry,
    read_entries,
    recover,
    remove_covered,
    split,
    write_snapshot,
)
from ottla.cluster.metadata_log import Entry, LogBehind, check_not_behind
from ottla.cluster.nodes import create_if_missing, create_layout, delete_nodes
from ottla.cluster.store import Create, NodeExists, NoNode, SetData, Store, StoreSession, StoreUnavailable
from ottla.cluster.znodes import SnapshotPointer
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

DELETIONS_AT_ONCE = 200

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

    def require(self, store_head: int) -> None:
        """LogBehind if the store ends before a version that this broker has applied."""
        check_not_behind(store_head, self._head)

    def add(self, entry: Entry) -> None:
        """Have an entry written soon. LogBehind if the copy has another entry of that version."""
        known = self._ids.get(entry.version)
        if known is not None and not entry.snapshot and known != entry.id:
            message = (
                f"entry {entry.version} of the metadata in the store is not the one that this broker has applied: the "
                f"store was restored from an old copy and went on without this broker"
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
    image = EMPTY
    for entry in read_entries(disk, directory, 0, recover(disk, directory).head):
        image = (EMPTY if entry.snapshot else image).replay(entry.version, entry.changes)
    if image.cluster_id is None:
        raise NoCopy(f"{directory} is empty")
    return image


async def read_version(store: Store) -> int:
    """The version at which the metadata in a store ends, 0 if it holds none. Nothing is written."""
    session = await store.open(lambda state: None)
    try:
        return znodes.decode_head((await session.get(znodes.HEAD)).data)
    except NoNode:
        return 0
    finally:
        await session.close()


async def restore_store(store: Store, image: Image) -> int:
    """Write a store that was lost from the image of a copy. Returns the version that it was at, 0 if it was empty.

    StoreUnavailable if the store holds another cluster, or is not behind the copy. Brokers must be stopped.
    """
    session = await store.open(lambda state: None)
    try:
        await create_layout(session)
        head, pointer_node = await session.get(znodes.HEAD), await session.get(znodes.SNAPSHOT)
        version = znodes.decode_head(head.data)
        if alive := await session.children(znodes.ALIVE):
            raise StoreUnavailable(f"brokers are running on this store: {', '.join(alive)}. Stop them first")
        if version >= image.version:
            raise StoreUnavailable(
                f"the store is at version {version}, the copy only at {image.version}: keep the store"
            )
        old = SnapshotPointer.decode(pointer_node.data)
        await keep_broker_ids(session, (*image.brokers, image.largest_unregistered))
        parts = list(split(image.snapshot()))
        await create_if_missing(session, znodes.snapshot_path(image.version))
        for number, part in enumerate(parts):
            await _put(session, znodes.snapshot_part_path(image.version, number), part)
        pointer = SnapshotPointer(((image.version, len(parts)),), image.version + 1)
        await session.commit(
            [
                SetData(znodes.SNAPSHOT, pointer.encode(), pointer_node.version),
                SetData(znodes.HEAD, znodes.encode_head(image.version), head.version),
            ]
        )
        for first in range(old.first_entry, version + 1, DELETIONS_AT_ONCE):
            entries = range(first, min(first + DELETIONS_AT_ONCE, version + 1))
            await delete_nodes(session, [znodes.entry_path(entry) for entry in entries])
        return version
    finally:
        await session.close()


async def _put(session: StoreSession, node: str, data: bytes) -> None:
    """Create a node, or replace what an attempt has left that did not finish."""
    try:
        await session.commit([Create(node, data)])
    except NodeExists:
        await session.commit([SetData(node, data)])
