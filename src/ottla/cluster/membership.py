"""The membership of this broker in a cluster: its session with the store, and its registration in the metadata.

A broker is a member while its alive node exists. The node is created by the commit that registers the broker, and
disappears with the session. When the session has expired, a new one is opened by itself; the broker is told, and has
to register again, which gives it a new epoch.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from ottla.cluster import znodes
from ottla.cluster.connection import StoreConnection
from ottla.cluster.decision import Decision
from ottla.cluster.image import BrokerImage, Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import LogUnavailable
from ottla.cluster.nodes import create_layout
from ottla.cluster.registration import BrokerRegistration, register_broker
from ottla.cluster.shared_log import SharedLog
from ottla.cluster.store import (
    NoConnection,
    NoNode,
    NotAllowed,
    SessionState,
    Store,
    StoreError,
    StoreSession,
    StoreUnavailable,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import StoreMeter
from ottla.system.threads import Offload

PREDECESSOR_TIMEOUTS = 1.5
"""How many session time-outs a broker waits for another one with its id to be gone."""

PREDECESSOR_POLL_S = 0.2

RETRY_S = 0.2
"""Pause after something that failed for lack of a connection. A session may not know yet that it has none."""

logger = logging.getLogger(__name__)


class Membership:
    """One broker's session and registration. `locked` identifies the data directories that this process has locked."""

    def __init__(self, store: Store, broker_id: int, locked: Sequence[bytes], random: Random, offload: Offload) -> None:
        self.on_expired: Callable[[], None] = _ignore
        """Called when the session has expired: the broker is fenced, or soon will be, and has to register again."""
        self.meter = StoreMeter()
        self.broker_id = broker_id
        self.broker_epoch = -1
        """The epoch of the last registration of this broker; -1 before the first."""
        self._incarnation = random.randbytes(16).hex()
        self._directories = sorted(directory.hex() for directory in locked)
        self._connection = StoreConnection(store, random)
        self._is_suspended = False
        self.log = SharedLog(self._connection, broker_id, random, offload)
        self._connection.on_state(self._handle_state_change)

    @property
    def is_connected(self) -> bool:
        return self._connection.is_connected

    @property
    def session_timeout_s(self) -> float:
        """The time-out of the session, as agreed with the store."""
        return self._connection.timeout_s

    async def connect(self) -> None:
        """Open a session. StoreUnavailable if the store cannot be reached. Nothing is written."""
        await self._connection.open()

    async def prepare(self) -> None:
        """Claim the store, and create the nodes of a new cluster. StoreUnavailable if the store refuses that."""
        while True:
            try:
                await create_layout(await self._connection.wait_until_connected())
                return
            except NoConnection as error:
                logger.info("the nodes of the cluster cannot be created yet: %s", error)
                await asyncio.sleep(RETRY_S)
            except NotAllowed as error:
                raise StoreUnavailable(str(error)) from None
            except StoreError as error:
                raise StoreUnavailable(f"the nodes of the cluster could not be created: {error}") from None

    async def wait_until_connected(self) -> None:
        """Returns as soon as there is a session with a connection: the last one, or a new one if it has expired."""
        await self._connection.wait_until_connected()

    async def register(
        self, metadata: Metadata, registration: BrokerRegistration, cluster_id: str, timeout_s: float | None = None
    ) -> int:
        """Register this broker. Returns its broker epoch. A new cluster gets `cluster_id`.

        An alive node of the same broker id that names the same data directories is left from an earlier process,
        because this one has locked them: the registration replaces the node. A node that names other directories
        belongs to another broker: DUPLICATE_BROKER_REGISTRATION, unless the node is gone within the session time-out.
        The same error tells a process that a later one has taken its place.
        """
        alive = {"directories": self._directories, "incarnation": self._incarnation}
        self.log.alive_data = json.dumps(alive).encode()
        while True:
            try:
                await self._connection.wait_until_connected()
                await metadata.refresh()
                before = metadata.image.broker(self.broker_id)
                self.log.predecessors = await self._wait_for_predecessors()
                decide = partial(_register, registration=registration, cluster_id=cluster_id, before=before)
                self.broker_epoch = await metadata.change(decide, timeout_s, first=True)
                return self.broker_epoch
            except (StoreError, LogUnavailable, _RegisteredMeanwhile) as error:
                logger.info("registration of broker %d starts again: %s", self.broker_id, error)
                await asyncio.sleep(RETRY_S)

    async def list_alive(self) -> dict[int, int]:
        """The brokers whose sessions live, with their epochs. LogUnavailable if the store cannot be reached."""
        return _find_newest(await self._list_children(znodes.ALIVE))

    async def watch_alive(self, watch: Callable[[], None]) -> dict[int, int]:
        """Like `list_alive`, possibly a little old. `watch` is called once, when a broker joins or leaves."""
        try:
            return _find_newest(await self._connection.require().children(znodes.ALIVE, watch))
        except StoreError as error:
            raise LogUnavailable(str(error)) from None

    async def list_controllers(self) -> list[int]:
        """Epochs of controllers whose sessions live. LogUnavailable if the store cannot be reached."""
        return sorted(znodes.list_numbers(await self._list_children(znodes.CONTROLLER)))

    async def _list_children(self, path: str) -> list[str]:
        try:
            session = self._connection.require()
            _, names = await asyncio.gather(session.sync(), session.children(path))
        except StoreError as error:
            raise LogUnavailable(str(error)) from None
        return names

    async def leave(self) -> None:
        """Leave the cluster: the session ends, and other brokers see it at once."""
        await self._connection.close()

    def abandon(self) -> None:
        """End as if killed: others see that this broker is gone when its session has timed out."""
        self._connection.abandon()

    def _handle_state_change(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.meter.expirations += 1
            logger.warning("broker %d: the session with %s has expired", self.broker_id, self._connection.store_name)
            self.on_expired()
        elif state is SessionState.SUSPENDED:
            self._is_suspended = True
            self.meter.disconnects += 1
            logger.warning(
                "broker %d has lost its connection to %s: it serves topics as before, and the metadata cannot change",
                self.broker_id,
                self._connection.store_name,
            )
        elif self._is_suspended:
            self._is_suspended = False
            logger.info("broker %d is connected to %s again", self.broker_id, self._connection.store_name)

    async def _wait_for_predecessors(self) -> list[str]:
        """Alive nodes of this broker's id, once all of them belong to its own data directories."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PREDECESSOR_TIMEOUTS * self.session_timeout_s
        while True:
            session = self._connection.require()
            await session.sync()
            own: list[str] = []
            foreign = None
            for broker_id, epoch in znodes.list_alive(await session.children(znodes.ALIVE)):
                if broker_id == self.broker_id:
                    path = znodes.alive_path(broker_id, epoch)
                    if await self._is_own(session, path, epoch):
                        own.append(path)
                    else:
                        foreign = path
            if foreign is None:
                return own
            if loop.time() > deadline:
                message = (
                    f"another broker with id {self.broker_id} and other data directories is in the cluster; "
                    f"give this one another broker.id"
                )
                raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
            await asyncio.sleep(PREDECESSOR_POLL_S)

    async def _is_own(self, session: StoreSession, path: str, epoch: int) -> bool:
        """Whether an alive node is from this process, or from an earlier one with the same data directories."""
        try:
            node = await session.get(path)
        except NoNode:
            return False
        members = json.loads(node.data)
        if members["incarnation"] == self._incarnation:
            return True
        if not set(members["directories"]) & set(self._directories):
            return False
        if epoch > self.broker_epoch >= 0:
            message = f"another process with the data directories of broker {self.broker_id} has taken its place"
            raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
        return True


class _RegisteredMeanwhile(Exception):
    """A broker with this id has registered since its alive nodes were listed: list them again."""


def _register(
    image: Image, registration: BrokerRegistration, cluster_id: str, before: BrokerImage | None
) -> Decision[int]:
    now = image.broker(registration.broker_id)
    if now is not None and (before is None or now.epoch != before.epoch):
        raise _RegisteredMeanwhile(f"broker {registration.broker_id} has registered at epoch {now.epoch}")
    return register_broker(image, registration, cluster_id, is_alone=True)


def _ignore() -> None:
    """The default of `on_expired`: do nothing."""


def _find_newest(names: Sequence[str]) -> dict[int, int]:
    """Broker ids with their newest epochs. A broker that restarted may have two nodes until the older one expires."""
    alive: dict[int, int] = {}
    for broker_id, epoch in sorted(znodes.list_alive(names)):
        alive[broker_id] = epoch
    return alive
