"""Ids for brokers that were started without one.

A node of the store holds the largest id that was ever generated, so no id is given twice, also after its broker has
left the cluster. Ids up to `reserved.broker.max.id` are left to people.
"""

import asyncio
from collections.abc import Iterable
from random import Random

from ottla.cluster import znodes
from ottla.cluster.connection import StoreConnection
from ottla.cluster.nodes import create_if_missing
from ottla.cluster.store import (
    BadVersion,
    NoConnection,
    NotAllowed,
    SetData,
    Store,
    StoreError,
    StoreSession,
    StoreUnavailable,
)

RETRY_S = 0.2


async def generate_broker_id(store: Store, reserved_max: int, random: Random) -> int:
    """A new id above `reserved_max`. StoreUnavailable if the store cannot be reached."""
    connection = StoreConnection(store, random)
    await connection.open()
    try:
        while True:
            try:
                return await _take_next(await connection.wait_until_connected(), reserved_max)
            except (BadVersion, NoConnection):
                # Another broker took the id, or the answer was lost: then an id may be taken that nobody uses.
                await asyncio.sleep(RETRY_S * random.random())
    except NotAllowed as error:
        raise StoreUnavailable(str(error)) from None
    except StoreError as error:
        message = f"no id could be generated for this broker, give it one (--node-id): {error}"
        raise StoreUnavailable(message) from None
    finally:
        await connection.close()


async def keep_broker_ids(session: StoreSession, broker_ids: Iterable[int]) -> None:
    """Reserve the ids of these brokers in a store that is restored, so that no other broker gets them."""
    await create_if_missing(session, znodes.BROKER_IDS)
    node = await session.get(znodes.BROKER_IDS)
    largest = max((int(node.data or b"0"), *broker_ids))
    await session.commit([SetData(znodes.BROKER_IDS, b"%d" % largest, node.version)])


async def _take_next(session: StoreSession, reserved_max: int) -> int:
    await session.claim()
    for path in (znodes.ROOT, znodes.BROKER_IDS):
        await create_if_missing(session, path)
    node = await session.get(znodes.BROKER_IDS)
    broker_id = max(int(node.data or b"0"), reserved_max) + 1
    await session.commit([SetData(znodes.BROKER_IDS, b"%d" % broker_id, node.version)])
    return broker_id
