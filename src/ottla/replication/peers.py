"""Connections to the other brokers of the cluster: one shared connection to each, and further ones for fetchers.

The shared connections carry short requests, such as WriteTxnMarkers. Each is kept open while the metadata says that the
broker is alive, even if there is nothing to send: a process that ends closes its connections at once, long before its
session in the metadata store times out. When a connection is lost, the next one is tried without delay. If that one
is refused, no process listens there any more, and `on_gone` is called.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.cluster.changes import Endpoint
from ottla.cluster.image import Image
from ottla.system.network import Connect
from ottla.wire.peer import ANSWER_BYTES_MAX, PeerConnection, PeerRequest, PeerUnavailable, open_peer

if TYPE_CHECKING:
    from ottla.replication.peer_login import PeerLogin

__all__ = ["PeerUnavailable", "Peers"]

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0


@dataclass(slots=True)
class _Link:
    """The shared connection to one broker."""

    broker_id: int
    endpoint: Endpoint
    broker_epoch: int
    """The epoch of the broker's registration when the last answer arrived, or when the connection was opened."""
    connection: PeerConnection | None = None
    task: asyncio.Task[None] | None = None
    opened: asyncio.Future[PeerConnection] | None = None
    """What requests wait for while there is no connection. Fails with every attempt that fails."""
    backoff_s: float = 0.0
    was_lost: bool = False
    """Whether there was a connection to this registration of the broker, and it broke."""


class Peers:
    def __init__(
        self,
        broker_id: int,
        image: Callable[[], Image],
        connect: Connect,
        listener: str,
        random: Random,
        login: "PeerLogin | None" = None,
    ) -> None:
        """`listener`: the name of the inter-broker listener, the same on all brokers. `login`: how it is entered, if it
        has TLS or SASL."""
        self.on_gone: Callable[[int, int], None] | None = None
        """Called with broker id and broker epoch when the process of a broker is gone."""
        self._broker_id = broker_id
        self._image = image
        self._connect = connect
        self._listener = listener
        self._random = random
        self._login = login
        self._links: dict[int, _Link] = {}
        self._is_closed = False

    def apply(self, image: Image) -> None:
        """Keep a connection to every broker that is alive in `image`, and to no other."""
        if self._is_closed:
            return
        alive: dict[int, None] = {}
        for broker in image.alive_brokers():
            if broker.id != self._broker_id:
                endpoint = broker.endpoint(self._listener)
                if endpoint is not None and endpoint.host:
                    alive[broker.id] = None
                    self._keep(broker.id, endpoint, broker.epoch)
        for broker_id in sorted(self._links.keys() - alive.keys()):
            self._drop(self._links.pop(broker_id), f"broker {broker_id} is not alive")

    async def request(self, broker_id: int, message: PeerRequest, *, timeout_s: float) -> Any:
        """Send a request to another broker and return its answer.

        PeerUnavailable if there is no connection or no answer within the time; KafkaError UNSUPPORTED_VERSION if the
        broker does not know the API.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        link = self._find_link(broker_id)
        connection = link.connection
        if connection is None or not connection.is_ready:
            connection = await self._wait_for_connection(link, timeout_s)
        left_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
        answer = await connection.request(message, timeout_s=left_s)
        self._note_answer(link)
        return answer

    async def open(
        self, broker_id: int, timeout_s: float = CONNECT_TIMEOUT_S, *, answer_bytes_max: int = ANSWER_BYTES_MAX
    ) -> PeerConnection:
        """Open a connection of the caller's own, which has to close it. PeerUnavailable if that fails."""
        if self._is_closed:
            raise PeerUnavailable("this broker is stopping")
        endpoint, _ = self._find(broker_id)
        return await self._open(endpoint, timeout_s, answer_bytes_max)

    def close(self) -> None:
        """Close all shared connections. Requests in flight fail."""
        self._is_closed = True
        while self._links:
            _, link = self._links.popitem()
            self._drop(link, "this broker is stopping")

    # Shared connections

    def _find(self, broker_id: int) -> tuple[Endpoint, int]:
        """Where a broker can be reached, and the epoch of its registration."""
        broker = self._image().broker(broker_id)
        if broker is None:
            raise PeerUnavailable(f"broker {broker_id} is not registered")
        endpoint = broker.endpoint(self._listener)
        if endpoint is None or not endpoint.host:
            raise PeerUnavailable(f"broker {broker_id} has no address for the listener {self._listener}")
        return endpoint, broker.epoch

    def _find_link(self, broker_id: int) -> _Link:
        if self._is_closed:
            raise PeerUnavailable("this broker is stopping")
        link = self._links.get(broker_id)
        endpoint, epoch = self._find(broker_id)
        if link is None or link.endpoint != endpoint:
            link = self._keep(broker_id, endpoint, epoch)
        return link

    def _keep(self, broker_id: int, endpoint: Endpoint, epoch: int) -> _Link:
        """The link to a broker at its present address. A new link begins to connect at once."""
        link = self._links.get(broker_id)
        if link is not None and link.endpoint == endpoint:
            if link.connection is None and link.broker_epoch != epoch:
                link.broker_epoch, link.was_lost = epoch, False
                if link.backoff_s:  # the broker has started anew: do not wait
                    link.backoff_s = 0.0
                    self._start_connecting(link)
            return link
        if link is not None:
            self._drop(link, f"broker {broker_id} has another address")
        link = self._links[broker_id] = _Link(broker_id, endpoint, epoch)
        self._start_connecting(link)
        return link

    def _start_connecting(self, link: _Link) -> None:
        if link.task is not None:
            link.task.cancel()
        loop = asyncio.get_running_loop()
        link.task = loop.create_task(self._keep_connecting(link), name=f"connect to broker {link.broker_id}")

    async def _keep_connecting(self, link: _Link) -> None:
        """Connect, with growing pauses between attempts."""
        while True:
            if link.backoff_s:
                await asyncio.sleep(link.backoff_s * self._random.uniform(0.8, 1.2))
            try:
                connection = await self._open(link.endpoint, CONNECT_TIMEOUT_S, ANSWER_BYTES_MAX)
            except PeerUnavailable as error:
                self._handle_failed_attempt(link, error)
                if link.was_lost and error.is_refused:
                    self._report_gone(link)
                link.backoff_s = min(max(2 * link.backoff_s, BACKOFF_FIRST_S), BACKOFF_MAX_S)
                continue
            link.task, link.connection = None, connection
            link.backoff_s, link.was_lost = 0.0, False
            connection.on_lost = lambda reason: self._handle_loss(link, reason)
            self._note_answer(link)
            opened, link.opened = link.opened, None
            if opened is not None:
                opened.set_result(connection)
            return

    def _handle_failed_attempt(self, link: _Link, error: PeerUnavailable) -> None:
        if link.backoff_s in (0.0, BACKOFF_FIRST_S):
            logger.info("broker %d cannot be reached: %s", link.broker_id, error)
        _fail_waiters(link, error)

    def _handle_loss(self, link: _Link, reason: str) -> None:
        logger.info("lost the connection to broker %d: %s", link.broker_id, reason)
        link.connection, link.was_lost = None, True
        self._start_connecting(link)

    def _report_gone(self, link: _Link) -> None:
        """Called for every refused attempt, so that a fencing that failed is tried again."""
        if not link.backoff_s:
            broker = self._image().broker(link.broker_id)
            log = logger.info if broker is None or broker.shutting_down or broker.fenced else logger.warning
            log("the process of broker %d is gone: it refuses connections", link.broker_id)
        if self.on_gone is not None:
            self.on_gone(link.broker_id, link.broker_epoch)

    def _note_answer(self, link: _Link) -> None:
        """The process at the other end is the one that is registered now."""
        broker = self._image().broker(link.broker_id)
        if broker is not None:
            link.broker_epoch = broker.epoch

    async def _wait_for_connection(self, link: _Link, timeout_s: float) -> PeerConnection:
        if link.opened is None:
            link.opened = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(link.opened)
        except TimeoutError:
            raise PeerUnavailable(f"broker {link.broker_id}: no connection within {timeout_s:g} s") from None

    def _drop(self, link: _Link, reason: str) -> None:
        if link.task is not None:
            link.task.cancel()
        connection, link.connection = link.connection, None
        if connection is not None:
            connection.close(reason)
        _fail_waiters(link, PeerUnavailable(reason))

    async def _open(self, endpoint: Endpoint, timeout_s: float, answer_bytes_max: int) -> PeerConnection:
        return await open_peer(
            self._connect,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._broker_id}",
            timeout_s=timeout_s,
            answer_bytes_max=answer_bytes_max,
            tls=None if self._login is None else self._login.context,
            login=None if self._login is None else self._login.enter,
        )


def _fail_waiters(link: _Link, error: PeerUnavailable) -> None:
    opened, link.opened = link.opened, None
    if opened is not None:
        opened.set_exception(error)
        opened.exception()  # everybody who waited may have given up
