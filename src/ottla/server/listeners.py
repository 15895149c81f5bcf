"""Listeners, and how a server ends. What happens on one connection is `connection.py`'s, what connections share is
`traffic.py`'s.

The server knows frames, not Kafka. `dispatch(client, frame)` answers each of them in one of three ways:

- a list of parts (the answer, without its size), or None if there is none: done.
- a coroutine: it runs as a task, and the connection handles no other frame until it is done. It ends with one of the
  other two.
- a future: the answer comes later, further frames may be handled meanwhile. Answers leave in the order of the frames.

Raising `CloseConnection`, in any of these, ends the connection after the answers that came before.
"""

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from ssl import SSLContext
from typing import Any

from ottla.broker.call import Dispatch
from ottla.config.overrides import is_address
from ottla.server.connection import Connection
from ottla.server.sending import Offload
from ottla.server.traffic import ServerSettings, Traffic

logger = logging.getLogger(__name__)

BACKLOG = 1024
CANCELLATION_S = 1.0  # for cancelled requests to clean up
GREETING_S = 10.0  # for a client to agree on TLS: until then nobody counts its connection
FAREWELL_S = 1.0  # for a client to answer the end of TLS, which few do


class Server:
    """Made inside a running loop. Every name that `traffic` counts is for metrics to read."""

    def __init__(self, dispatch: Dispatch, settings: ServerSettings, offload: Offload) -> None:
        self.traffic = Traffic(settings)
        self._dispatch = dispatch
        self._offload = offload
        self._listeners: list[asyncio.AbstractServer] = []

    @property
    def connections(self) -> int:
        return len(self.traffic.flows)

    def connections_by_listener(self) -> Counter[str]:
        return Counter(connection.client.listener for connection in self._open_connections())

    async def start(self, host: str, port: int, listener: str, ssl: SSLContext | None = None) -> int:
        """Listen on one more address; returns the port, which is chosen if `port` is 0."""
        loop = self.traffic.loop
        await self._look_up_names()
        sockets = await bound_sockets(loop, host, port)
        bound_port = int(sockets[0].getsockname()[1])
        for bound in sockets:
            server = await loop.create_server(
                self.protocol_factory(listener),
                sock=bound,
                backlog=BACKLOG,
                ssl=ssl,
                ssl_handshake_timeout=GREETING_S if ssl else None,
                ssl_shutdown_timeout=FAREWELL_S if ssl else None,
            )
            self._listeners.append(server)
        return bound_port

    async def _look_up_names(self) -> None:
        """Hosts that the limits call by name. One that nobody knows has no exception, and is told."""
        for name in self.traffic.settings.max_connections_per_ip_overrides:
            if not is_address(name):
                try:
                    found = await self.traffic.loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
                except OSError as error:
                    logger.warning("max.connections.per.ip.overrides: %s is unknown: %s", name, error.strerror or error)
                else:
                    self.traffic.admission.host_names.update((str(each[4][0]), name) for each in found)

    def protocol_factory(self, listener: str) -> Callable[[], Connection]:
        """What makes the protocol of an accepted connection; the simulator's network calls it too."""
        return lambda: Connection(self.traffic, self._dispatch, self._offload, listener)

    async def stop(self, deadline_s: float) -> None:
        """Accept nothing more, finish the requests in progress and send their answers; at the deadline, abort."""
        traffic = self.traffic
        self._stop_listening()
        for connection in self._open_connections():
            connection.drain()
        if traffic.flows:
            traffic.emptied = traffic.loop.create_future()
        await self._settle(deadline_s)
        self.abort()
        await self._settle(CANCELLATION_S)

    async def _settle(self, deadline_s: float) -> None:
        """Wait until all connections and requests are gone, or the deadline is past."""
        unfinished: list[asyncio.Future[Any]] = list(self.traffic.tasks)
        if self.traffic.emptied is not None:
            unfinished.append(self.traffic.emptied)
        if unfinished:
            await asyncio.wait(unfinished, timeout=deadline_s)

    def abort(self) -> None:
        """End at once: connections are closed as they are, requests in progress are cancelled."""
        self._stop_listening()
        for connection in self._open_connections():
            connection.abort()
        for task in list(self.traffic.tasks):
            task.cancel()

    def _open_connections(self) -> list[Connection]:
        return [flow for flow in self.traffic.flows if isinstance(flow, Connection)]

    def _stop_listening(self) -> None:
        self.traffic.admission.closed = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()


async def bound_sockets(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """A bound socket for each address of the host, all on one port; an empty host means every interface."""
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, f"no address of {host!r} can be listened on")
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            same_port = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(_bound(family, kind, protocol, (address[0], same_port, *address[2:])))
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                missing = error  # a name may have an address of a family that this machine does not have
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    if not sockets:
        raise missing
    return sockets


def _bound(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # inherited: finds peers that vanished
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
