"""Creates and deletes nodes of the store, whether or not they exist already."""

from collections.abc import Sequence
from contextlib import suppress

from ottla.cluster import znodes
from ottla.cluster.store import Create, Delete, NodeExists, NoNode, StoreSession


async def create_layout(session: StoreSession) -> None:
    """Claim the store, and create the nodes that every cluster has. A new cluster has a head at version 0 then."""
    await session.claim()
    for path in znodes.LAYOUT:
        await create_if_missing(session, path)
    await create_if_missing(session, znodes.HEAD, znodes.encode_head(0))


async def create_if_missing(session: StoreSession, path: str, data: bytes = b"") -> None:
    """Create a node. One that exists keeps its data."""
    with suppress(NodeExists):
        await session.commit([Create(path, data)])


async def delete_nodes(session: StoreSession, paths: Sequence[str]) -> None:
    """Delete nodes, some of which may be gone already."""
    try:
        await session.commit([Delete(path) for path in paths])
    except NoNode:
        for path in paths:
            with suppress(NoNode):
                await session.commit([Delete(path)])
