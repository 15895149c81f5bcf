"""Snapshots of the metadata in the coordination store, and the removal of the entries that they cover.

A snapshot is written by the controller: its parts first, then the pointer that makes it count. Two snapshots are kept.
Entries that the older of the two covers are deleted.
"""

import asyncio
from dataclasses import replace

from ottla.cluster import znodes
from ottla.cluster.changes import Change
from ottla.cluster.connection import StoreConnection
from ottla.cluster.encoding import decode
from ottla.cluster.image import Image
from ottla.cluster.metadata_files import split
from ottla.cluster.metadata_log import Entry
from ottla.cluster.nodes import delete_nodes
from ottla.cluster.store import Check, Create, NodeExists, NoNode, SetData, StoreSession
from ottla.cluster.znodes import SnapshotPointer
from ottla.system.threads import Offload

SNAPSHOT_BYTES = 4 << 20
SNAPSHOT_ENTRIES = 5_000
"""A snapshot is worthwhile after so many bytes or entries: ZooKeeper keeps all of them in memory."""

WORTH_A_JUMP = 2_000
"""A reader that is so many entries behind starts from the snapshot, even if the entries still exist."""

KEPT = 2
DELETIONS_AT_ONCE = 200


class MissingEntries(Exception):
    """An entry or a part of a snapshot was removed while it was being read. Start again from the newest snapshot."""


class SharedSnapshots:
    def __init__(self, connection: StoreConnection, offload: Offload) -> None:
        self._connection = connection
        self._offload = offload
        self._entries = self._bytes = 0
        self._size = 0

    def count(self, entries: int, size: int) -> None:
        """Count entries that were appended or read since the last snapshot."""
        self._entries += entries
        self._bytes += size

    def wants_snapshot(self) -> bool:
        return self._entries >= SNAPSHOT_ENTRIES or self._bytes >= max(SNAPSHOT_BYTES, self._size)

    async def read(self, session: StoreSession, after: int, head: int, must: bool) -> Entry | None:
        """The newest snapshot, if a reader at version `after` should or `must` start from it."""
        if after >= head or (after and not must and head - after < WORTH_A_JUMP):
            return None
        pointer = SnapshotPointer.decode((await session.get(znodes.SNAPSHOT)).data)
        if pointer.newest <= after:
            return None
        version, parts = pointer.snapshots[-1]
        try:
            nodes = await asyncio.gather(
                *(session.get(znodes.snapshot_part_path(version, part)) for part in range(parts))
            )
        except NoNode:
            raise MissingEntries(f"snapshot {version} was removed") from None
        changes = await self._offload(_decode_parts, [node.data for node in nodes])
        self._entries = self._bytes = 0
        self._size = sum(len(node.data) for node in nodes)
        return Entry(version, b"", changes, snapshot=True)

    async def save(self, image: Image, controller: str) -> None:
        """Write a snapshot as the controller with this node, then delete what two snapshots cover."""
        self._entries = self._bytes = 0
        session = self._connection.require()
        node = await session.get(znodes.SNAPSHOT)
        pointer = SnapshotPointer.decode(node.data)
        if image.version <= pointer.newest:
            return
        parts = await self._offload(_encode_parts, image)
        self._size = sum(map(len, parts))
        await _prepare(session, controller, znodes.snapshot_path(image.version))
        for number, part in enumerate(parts):
            path = znodes.snapshot_part_path(image.version, number)
            await session.commit([Check(controller), Create(path, part)])
        kept = (*pointer.snapshots, (image.version, len(parts)))[-KEPT:]
        pointer = replace(pointer, snapshots=kept)
        await session.commit([Check(controller), SetData(znodes.SNAPSHOT, pointer.encode(), node.version)])
        await self._remove_covered(session, controller, pointer, node.version + 1)

    async def _remove_covered(
        self, session: StoreSession, controller: str, pointer: SnapshotPointer, pointer_version: int
    ) -> None:
        if len(pointer.snapshots) == KEPT:
            # The pointer names the first entry before the deletion starts, so that no reader looks for a deleted one.
            covered = range(pointer.first_entry, pointer.snapshots[0][0] + 1)
            pointer = replace(pointer, first_entry=covered.stop)
            await session.commit([Check(controller), SetData(znodes.SNAPSHOT, pointer.encode(), pointer_version)])
            for first in range(covered.start, covered.stop, DELETIONS_AT_ONCE):
                versions = range(first, min(first + DELETIONS_AT_ONCE, covered.stop))
                await delete_nodes(session, [znodes.entry_path(version) for version in versions])
        kept = {version for version, _ in pointer.snapshots}
        for version in znodes.list_numbers(await session.children(znodes.SNAPSHOT)):
            if version not in kept and version < pointer.newest:
                path = znodes.snapshot_path(version)
                await delete_nodes(session, [f"{path}/{part}" for part in await session.children(path)])
                await delete_nodes(session, [path])


def _encode_parts(image: Image) -> list[bytes]:
    return list(split(image.snapshot()))


def _decode_parts(parts: list[bytes]) -> tuple[Change, ...]:
    return tuple(change for part in parts for change in decode(part))


async def _prepare(session: StoreSession, controller: str, path: str) -> None:
    """Create the node of a snapshot, without the parts that a controller may have left when it died."""
    try:
        await session.commit([Check(controller), Create(path)])
    except NodeExists:
        await delete_nodes(session, [f"{path}/{part}" for part in await session.children(path)])
