"""Writes the metadata into a store that has lost it, from the image of a broker's copy.

What the store holds is replaced only if it is of the same cluster and older than the copy, and while no broker runs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from ottla.cluster import znodes
from ottla.cluster.broker_ids import keep_broker_ids
from ottla.cluster.connection import StoreConnection
from ottla.cluster.encoding import MalformedEntry
from ottla.cluster.image import Image, ReplayError
from ottla.cluster.metadata_files import split
from ottla.cluster.metadata_log import LogDisconnected, LogUnavailable, replay_entries
from ottla.cluster.nodes import create_if_missing, create_layout, delete_nodes
from ottla.cluster.shared_log import SharedLog
from ottla.cluster.store import (
    Create,
    NodeExists,
    NoNode,
    SetData,
    Store,
    StoreSession,
    StoreUnavailable,
)
from ottla.cluster.znodes import SnapshotPointer
from ottla.system.threads import Offload

DELETIONS_AT_ONCE = 200
NO_BROKER = -1
"""The id under which the log is read: nothing is appended to it."""


async def read_version(store: Store) -> int:
    """The version at which the metadata in a store ends, 0 if it holds none. Nothing is written."""
    session = await store.open(lambda state: None)
    try:
        return await _read_version(session)
    finally:
        await session.close()


async def check_restore(store: Store, image: Image, random: Random, offload: Offload) -> int:
    """The version that a store is at, 0 if it is empty. StoreUnavailable if `restore_store` would refuse to write it.

    Nothing is written.
    """
    async with _connect(store, random, offload) as (session, log):
        return await _check(store.name, session, log, image)


async def restore_store(store: Store, image: Image, random: Random, offload: Offload) -> int:
    """Write a store that was lost from the image of a copy. Returns the version that it was at, 0 if it was empty.

    StoreUnavailable if the store holds another cluster, or is not behind the copy. Brokers must be stopped.
    """
    async with _connect(store, random, offload) as (session, log):
        version = await _check(store.name, session, log, image)
        await create_layout(session)  # only now: this protects the nodes, which may be those of another cluster
        head, pointer_node = await session.get(znodes.HEAD), await session.get(znodes.SNAPSHOT)
        if znodes.decode_head(head.data) != version:
            raise StoreUnavailable(f"somebody else has written to {store.name} meanwhile")
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


@asynccontextmanager
async def _connect(store: Store, random: Random, offload: Offload) -> AsyncIterator[tuple[StoreSession, SharedLog]]:
    connection = StoreConnection(store, random)
    await connection.open()
    try:
        session = connection.require()
        await session.sync()
        yield session, SharedLog(connection, NO_BROKER, random, offload)
    finally:
        await connection.close()


async def _check(store_name: str, session: StoreSession, log: SharedLog, image: Image) -> int:
    """The version of the store, 0 if it is empty. StoreUnavailable if the image must not be written into it."""
    version = await _read_version(session)
    held = await _read_cluster_id(log, store_name) if version else None
    if held not in (None, image.cluster_id):
        raise StoreUnavailable(
            f"{store_name} holds cluster {held}, and the copy is of cluster {image.cluster_id}: give the path of that "
            f"one with --zookeeper HOST:PORT/PATH"
        )
    if not version:
        return 0
    alive = znodes.list_alive(await session.children(znodes.ALIVE))
    if alive:
        brokers = ", ".join(str(broker_id) for broker_id in sorted({broker_id for broker_id, _ in alive}))
        raise StoreUnavailable(
            f"brokers are running on {store_name}: {brokers}. Stop them first; one that was killed is gone when its "
            f"session has timed out"
        )
    if version >= image.version:
        raise StoreUnavailable(
            f"{store_name} is at version {version}, the copy only at {image.version}: keep what is there"
        )
    return version


async def _read_version(session: StoreSession) -> int:
    """The version of the newest entry, 0 if there is none."""
    try:
        return znodes.decode_head((await session.get(znodes.HEAD)).data)
    except NoNode:
        return 0


async def _read_cluster_id(log: SharedLog, store_name: str) -> str | None:
    """The cluster whose metadata the store holds, None if no broker has registered yet."""
    try:
        return replay_entries(await log.read(0)).cluster_id
    except LogDisconnected as error:
        raise StoreUnavailable(f"the connection to {store_name} was lost: {error}. Try again") from None
    except (LogUnavailable, MalformedEntry, ReplayError) as error:
        raise StoreUnavailable(
            f"what {store_name} holds cannot be read, so it may be another cluster: {error}. If it is not, delete "
            f"that, or restore into an empty path"
        ) from None


async def _put(session: StoreSession, node: str, data: bytes) -> None:
    """Create a node, or replace what an attempt has left that did not finish."""
    try:
        await session.commit([Create(node, data)])
    except NodeExists:
        await session.commit([SetData(node, data)])
