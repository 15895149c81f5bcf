"""Brokers without data, for tests of the shared metadata: each has a session, a log and an image."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from ottla.cluster.changes import Endpoint, SetFeature
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.membership import Membership
from ottla.cluster.metadata import Metadata
from ottla.cluster.registration import BrokerRegistration
from ottla.cluster.store import Store

T = TypeVar("T")

CLUSTER_ID = "a-cluster"


def offload(function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """A thread that takes no time: the work is done at once, the answer comes in the next iteration of the loop."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function(*args))
    except Exception as error:
        future.set_exception(error)
    return future


def count_up(name: str) -> Callable[[Image], Decision[int]]:
    """Adds one to a feature's level: wrong as soon as a decision is used on another image than it was made on."""

    def decide(image: Image) -> Decision[int]:
        level = image.features.get(name, 0) + 1
        return Decision([SetFeature(name, level)], level)

    return decide


class Member:
    """One life of a broker that does nothing but keep the metadata."""

    def __init__(
        self,
        store: Store,
        broker_id: int,
        seed: int = 1,
        directory: bytes | None = None,
        cluster_id: str = CLUSTER_ID,
    ) -> None:
        self.id = broker_id
        self.cluster_id = cluster_id
        self.epoch = -1
        self.expirations = 0
        self.directory = directory or bytes([broker_id]) * 16
        self.membership = Membership(store, broker_id, [self.directory], Random(seed), offload)
        self.membership.on_expired = self._expired
        self.metadata = Metadata(self.membership.log, Random(seed + 1))
        self._follower: asyncio.Task[None] | None = None

    @property
    def image(self) -> Image:
        return self.metadata.image

    async def join(self) -> int:
        await self.membership.connect()
        await self.metadata.load()
        await self.membership.prepare()
        self._follower = asyncio.create_task(self.metadata.follow(), name=f"follower of {self.id}")
        return await self.register()

    async def register(self) -> int:
        registration = BrokerRegistration(self.id, (self.directory,), (Endpoint("A", "h", 1, "PLAINTEXT"),))
        self.epoch = await self.membership.register(self.metadata, registration, self.cluster_id)
        return self.epoch

    async def leave(self) -> None:
        self.stop_following()
        await self.membership.leave()

    def die(self) -> None:
        self.stop_following()
        self.membership.abandon()

    def stop_following(self) -> None:
        """Read the log no more, as if the process was paused."""
        if self._follower is not None:
            self._follower.cancel()

    def _expired(self) -> None:
        self.expirations += 1
