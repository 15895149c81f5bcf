"""Listeners, and the stop of a server.

The server knows frames, not Kafka. `dispatch(client, frame)` returns one of three things:

- a list of parts, which is the answer without its size, or None if the request has no answer;
- a coroutine: it runs as a task, and the connection handles no other frame until it is done. It returns one of the
  other two;
- a future of the answer: further frames are handled meanwhile. Answers are sent in the order of the frames.

If any of these raises `CloseConnection`, the connection is closed after the answers to earlier frames.
"""

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.call import Dispatch
from ottla.config.overrides import is_address
from ottla.observability.metrics import LoginMeter
from ottla.server.connection import Connection
from ottla.server.sending import Offload
from ottla.server.traffic import ServerSettings, Traffic

if TYPE_CHECKING:
    from ottla.server.entrance import Entrance
    from ottla.server.handshakes import Handshakes, TlsListener

logger = logging.getLogger(__name__)

CANCELLATION_S = 1.0  # for cancelled requests to end


class Server:
    """Created inside a running loop. Metrics read the counters of `traffic`.

    A server with `is_open=False` binds its ports and refuses every connection until `open` is called: a broker of a
    cluster registers its ports before it can serve anybody.
    """

    def __init__(self, dispatch: Dispatch, settings: ServerSettings, offload: Offload, *, is_open: bool = True) -> None:
        self.traffic = Traffic(settings)
        self.traffic.admission.is_open = self._is_open = is_open
        self._dispatch = dispatch
        self._offload = offload
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._entrances: dict[str, Entrance] = {}
        self._handshakes: Handshakes | None = None

    @property
    def connections(self) -> int:
        return len(self.traffic.flows)

    def connections_by_listener(self) -> Counter[str]:
        return Counter(connection.client.listener for connection in self._open_connections())

    def logins_by_listener(self) -> Mapping[str, LoginMeter]:
        """Of listeners with TLS or SASL: the others ask nobody who they are."""
        return {listener: entrance.logins for listener, entrance in self._entrances.items()}

    def secure(self, listener: str, entrance: "Entrance") -> None:
        """Give a listener an entrance, before it is started."""
        self._entrances[listener] = entrance

    async def start(self, host: str, port: int, listener: str) -> int:
        """Listen on one more address. Returns the port; the system chooses one if `port` is 0."""
        loop = self.traffic.loop
        await self._resolve_names()
        sockets = await bind_sockets(loop, host, port)
        bound_port = int(sockets[0].getsockname()[1])
        backlog = self.traffic.settings.socket_listen_backlog_size
        factory, entrance = self.protocol_factory(listener), self._entrances.get(listener)
        for bound in sockets:
            self._size_buffers(bound)
            if entrance is not None and entrance.security.has_tls:
                tls = self._make_tls_listener(bound, factory, entrance, backlog)
                self._listeners.append(tls)
                if self._is_open:
                    await tls.start_serving()
            else:
                server = await loop.create_server(factory, sock=bound, backlog=backlog, start_serving=self._is_open)
                self._listeners.append(server)
        return bound_port

    def _make_tls_listener(
        self, bound: socket.socket, factory: Callable[[], Connection], entrance: "Entrance", backlog: int
    ) -> "TlsListener":
        from ottla.server.handshakes import Handshakes, TlsListener  # a server without TLS does without

        if self._handshakes is None:
            self._handshakes = Handshakes(self.traffic, self._offload)
        entrance.turns = self._handshakes.turns
        return TlsListener(bound, factory, entrance.security, self._handshakes, backlog, entrance.logins)

    def _size_buffers(self, bound: socket.socket) -> None:
        """Set the buffers that are chosen, before anybody connects: accepted sockets inherit them.

        Linux adapts the buffers of each connection to its network, and no longer does so for one that was set.
        """
        settings = self.traffic.settings
        if settings.socket_receive_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)
        if settings.socket_send_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)

    async def open(self) -> None:
        """Accept connections on every address."""
        self.traffic.admission.is_open = self._is_open = True
        for listener in self._listeners:
            await listener.start_serving()

    async def _resolve_names(self) -> None:
        """Look up the host names in max.connections.per.ip.overrides. An unknown one has no effect but a warning."""
        for name in self.traffic.settings.max_connections_per_ip_overrides:
            if not is_address(name):
                try:
                    found = await self.traffic.loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
                except OSError as error:
                    logger.warning("max.connections.per.ip.overrides: %s is unknown: %s", name, error.strerror or error)
                else:
                    self.traffic.admission.host_names.update((str(each[4][0]), name) for each in found)

    def protocol_factory(self, listener: str) -> Callable[[], Connection]:
        """Creates the protocol of an accepted connection. The network of the simulator uses it too."""
        entrance = self._entrances.get(listener)
        return lambda: Connection(self.traffic, self._dispatch, self._offload, listener, entrance)

    async def stop(self, deadline_s: float) -> None:
        """Accept no more connections, finish the requests in progress and send their answers; abort at the deadline."""
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
        """Wait until all connections are closed and all requests done, or until the deadline."""
        unfinished: list[asyncio.Future[Any]] = list(self.traffic.tasks)
        if self.traffic.emptied is not None:
            unfinished.append(self.traffic.emptied)
        if unfinished:
            await asyncio.wait(unfinished, timeout=deadline_s)

    def abort(self) -> None:
        """Close all connections at once and cancel the requests in progress."""
        self._stop_listening()
        for connection in self._open_connections():
            connection.abort()
        for task in list(self.traffic.tasks):
            task.cancel()

    def _open_connections(self) -> list[Connection]:
        return [flow for flow in self.traffic.flows if isinstance(flow, Connection)]

    def _stop_listening(self) -> None:
        self.traffic.admission.is_open = False
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()


async def bind_sockets(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Bind a socket to each address of the host, all on one port. An empty host means every interface."""
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, f"no address of {host!r} can be listened on")
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            same_port = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(_bind(family, kind, protocol, (address[0], same_port, *address[2:])))
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                missing = error  # a host may have an address of a family that this machine does not support
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    if not sockets:
        raise missing
    return sockets


def _bind(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted sockets inherit it: finds lost peers
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
