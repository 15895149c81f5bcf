"""ZooKeeper as the coordination store, through kazoo.

kazoo runs a thread per session that speaks to ZooKeeper; everything it has to tell is handed to the event loop in
order. kazoo sends heartbeats from that thread, so it would keep the session of a broker whose event loop is stuck: a
watchdog ends the session when the loop has not ticked for half of the time-out. A session that has expired is never
revived; the next one is a new kazoo client.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient, TransactionRequest
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import _CONNECTION_DROP, ConnectionDropped
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_digest_acl

from ottla.cluster import znodes
from ottla.cluster.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Disconnected,
    NodeData,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Operation,
    SessionExpired,
    SessionState,
    SetData,
    StoreError,
    StoreSession,
    StoreUnavailable,
    Watch,
)
from ottla.config import BrokerConfig
from ottla.config.zookeeper_addresses import parse_zookeeper_connect
from ottla.security.tls import TlsContext, build_zookeeper_context

TICKS_PER_TIMEOUT = 8
"""How often the event loop shows that it runs, and the watchdog looks, within a session time-out."""

MISSED_TICKS_MAX = TICKS_PER_TIMEOUT // 2

RECONNECT_S = 0.05
RECONNECT_MAX_S = 1.0

_ERRORS: dict[type[Exception], type[StoreError]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.ConnectionLoss: ConnectionLost,
    exceptions.ConnectionClosedError: ConnectionLost,
    exceptions.OperationTimeoutError: ConnectionLost,
    exceptions.SessionExpiredError: SessionExpired,
    exceptions.SessionMovedError: ConnectionLost,
}

logger = logging.getLogger(__name__)
_quiet = logging.getLogger(f"{__name__}.kazoo")
_quiet.setLevel(logging.ERROR)  # kazoo warns about every attempt to connect; this module says it once


class ZooKeeper:
    """A `Store`: ZooKeeper at the addresses of a `zookeeper.connect` setting."""

    def __init__(
        self,
        connect: str,
        session_timeout_s: float,
        connection_timeout_s: float,
        credentials: str | None = None,
        protect_nodes: bool = False,
        tls: TlsContext | None = None,
    ) -> None:
        """`connect` is host:port,host:port/path, ValueError if it is not.

        `credentials` is user:password for ZooKeeper's digest authentication. `protect_nodes` restricts every node to
        these credentials (zookeeper.set.acl); `StoreSession.claim` does so with those that others have created before.
        """
        self.addresses, self._root = parse_zookeeper_connect(connect)
        self.name = f"ZooKeeper at {self.addresses}{self._root}"
        self._session_timeout_s = session_timeout_s
        self._connection_timeout_s = connection_timeout_s
        self._credentials = credentials
        if protect_nodes and credentials is None:
            raise StoreUnavailable("zookeeper.set.acl needs zookeeper.credentials, as user:password")
        self._acl = CREATOR_ALL_ACL if protect_nodes else None
        self._owner = _make_own_acl(credentials) if protect_nodes and credentials else None
        self._tls = tls

    @classmethod
    def of(cls, config: BrokerConfig) -> "ZooKeeper":
        """The store that the settings name. ConfigError if its certificates cannot be used."""
        session_timeout_s = config.zookeeper_session_timeout_ms / 1000
        connection_timeout_ms = config.zookeeper_connection_timeout_ms
        return cls(
            config.zookeeper_connect,
            session_timeout_s,
            session_timeout_s if connection_timeout_ms is None else connection_timeout_ms / 1000,
            config.zookeeper_credentials,
            config.zookeeper_set_acl,
            build_zookeeper_context(config) if config.zookeeper_ssl_client_enable else None,
        )

    async def open(self, on_state: Callable[[SessionState], None]) -> StoreSession:
        session = ZooKeeperSession(self._make_client, self._root, self._owner, on_state, self._tls)
        try:
            async with asyncio.timeout(self._connection_timeout_s):
                await session.connected
                return session
        except (TimeoutError, StoreError) as error:
            session.abandon()
            reason = f"not within {self._connection_timeout_s:g} s" if isinstance(error, TimeoutError) else error
            message = f"cannot connect to ZooKeeper at {self.addresses}: {reason}. Is it running? (zookeeper.connect)"
            raise StoreUnavailable(message) from None

    def _make_client(self, handler: "_LoopHandler") -> Any:
        return KazooClient(
            hosts=self.addresses,
            timeout=self._session_timeout_s,
            handler=handler,
            default_acl=self._acl,
            auth_data=[("digest", self._credentials)] if self._credentials else None,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_S,
                max_delay=RECONNECT_MAX_S,
                sleep_func=handler.sleep_func,
            ),
            logger=_quiet,
        )


class _LoopQueue:
    """Where kazoo puts callbacks. They run on the event loop, in the order in which ZooKeeper's answers came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody is there to be told
            self._loop.call_soon_threadsafe(callback)


class _LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without the threads that would run its callbacks: they run on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: TlsContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.completion_queue = self.callback_queue = _LoopQueue(loop)
        self.connect_timeout_s: float | None = None

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """Connect to one server. A server that does not answer must leave time to try the others.

        kazoo's own TLS would trust all public authorities, beside those that the trust store has."""
        timeout = timeout if self.connect_timeout_s is None else self.connect_timeout_s
        connected = socket.create_connection(address, timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected if self._tls is None else self._tls.wrap_socket(connected, server_hostname=hostname)


class ZooKeeperSession:
    """A `StoreSession`. Its methods run on the event loop; a thread of its own is the watchdog and stops kazoo."""

    def __init__(
        self,
        new_client: Callable[[_LoopHandler], Any],
        root: str,
        owner: ACL | None,
        on_state: Callable[[SessionState], None],
        tls: TlsContext | None,
    ) -> None:
        self._root = root
        self._owner = owner
        self._on_state = on_state
        self._loop = asyncio.get_running_loop()
        self._state = SessionState.SUSPENDED
        self._id = 0
        self._was_connected = False
        self.connected: asyncio.Future[None] = self._loop.create_future()
        """Done when the session is open."""
        handler = _LoopHandler(self._loop, tls)
        client = self._client = new_client(handler)
        self.timeout_s = client._session_timeout / 1000
        handler.connect_timeout_s = self.timeout_s / (2 * len(client.hosts))
        client.add_listener(self._hear)
        self._connect = client._connection._connect
        client._connection._connect = self._connect_and_tell
        self._read_response = client._connection._read_response
        client._connection._read_response = self._read_response_in_order
        self._ticks = 0
        self._oldest_request: int | None = None
        """kazoo's number of the oldest request that has no answer yet, as of the last look; None if there was none."""
        self._silent_ticks = 0
        """For how many ticks it has been the oldest."""
        self._timer: asyncio.TimerHandle | None = None
        self._ending = threading.Event()
        self._is_killed = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        client.start_async()
        self._watchdog = threading.Thread(
            target=self._watch_loop, name="watchdog of the session with ZooKeeper", daemon=True
        )
        self._tick()
        self._watchdog.start()

    @property
    def id(self) -> int:
        return self._id

    @property
    def state(self) -> SessionState:
        return self._state

    async def get(self, path: str, watch: Watch | None = None) -> NodeData:
        data, stat = await self._request(
            lambda: self._client.get_async(self._root + path, watch and _EventWatch(watch)), path
        )
        return NodeData(data, stat.version, stat.ephemeralOwner)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = await self._request(
            lambda: self._client.get_children_async(self._root + path, watch and _EventWatch(watch)), path
        )
        return sorted(names)

    async def commit(self, operations: Sequence[Operation]) -> None:
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        results = await self._request(transaction.commit_async, "")
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(
                result, exceptions.RolledBackError | exceptions.RuntimeInconsistency
            ):
                raise self._translate(result, operation.path)

    async def sync(self) -> None:
        await self._request(lambda: self._client.sync_async(self._root or "/"), "")

    async def claim(self) -> None:
        parts = self._root.split("/")[1:]
        for count in range(1, len(parts) + 1):
            transaction = self._client.transaction()
            transaction.create("/" + "/".join(parts[:count]), acl=OPEN_ACL_UNSAFE)  # others may have paths beside ours
            await self._request(transaction.commit_async, "")
        if self._owner is not None:
            await self._protect(znodes.ROOT, self._owner)

    async def _protect(self, path: str, owner: ACL) -> None:
        """Let the owner alone use a node and all nodes below it. Nodes that were created before zookeeper.set.acl was
        set, or by a stranger before the first broker started, could otherwise be changed by everybody."""
        full = self._root + path
        try:
            found, _ = await self._request(lambda: self._client.get_acls_async(full), path)
            if found != [owner]:
                await self._request(lambda: self._client.set_acls_async(full, [owner]), path)
            names = await self.children(path)
        except NoNode:
            return
        await asyncio.gather(*(self._protect(f"{path}/{name}", owner) for name in names))

    async def close(self) -> None:
        self._change(SessionState.CLOSED)
        await asyncio.wait([self._ended])

    def abandon(self) -> None:
        self._is_killed = True
        self._change(SessionState.CLOSED)

    async def _request(self, send: Callable[[], Any], path: str) -> Any:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpired("the session is over")
        if not self._client.connected:
            raise Disconnected("there is no connection to ZooKeeper")
        future = self._loop.create_future()

        def finish(result: Any) -> None:
            if future.done():
                return
            if result.exception is None:
                future.set_result(result.value)
            else:
                future.set_exception(self._translate(result.exception, path))

        send().rawlink(finish)
        return await future

    def _add(self, transaction: TransactionRequest, operation: Operation) -> None:
        path = self._root + operation.path
        match operation:
            case Create(_, data, ephemeral):
                transaction.create(path, data, ephemeral=ephemeral)
            case Delete(_, version):
                transaction.delete(path, version)
            case SetData(_, data, version):
                transaction.set_data(path, data, version)
            case Check(_, version):
                transaction.check(path, version)

    def _translate(self, error: BaseException, path: str) -> StoreError:
        if isinstance(error, exceptions.NoAuthError):
            return NotAllowed(
                f"the node {self._root}{path} in ZooKeeper belongs to somebody else, and zookeeper.credentials do not "
                f"suffice to use it. Remove it, or use the credentials of its owner",
                path,
            )
        for kind, ours in _ERRORS.items():
            if isinstance(error, kind):
                return ours(f"{path}: {type(error).__name__}" if path else type(error).__name__, path)
        if isinstance(error, exceptions.ZookeeperError):
            return StoreError(f"{path}: {error!r}", path)
        # An error inside kazoo, not an answer of ZooKeeper: the request may have been carried out.
        return ConnectionLost(f"{path}: {error!r}", path)

    # In kazoo's thread

    def _connect_and_tell(self, *args: Any) -> Any:
        """kazoo's connect, which alone knows the time-out that ZooKeeper agreed to: 3/2 of the time-out to read."""
        read_ms, connect_ms = self._connect(*args)
        self._post(self._handle_opened_connection, self._client._session_id, read_ms * 1.5 / 1000)
        return read_ms, connect_ms

    def _read_response_in_order(self, header: Any, *args: Any) -> Any:
        """Read one answer. This replaces kazoo's method, whose thread ends when an answer is missing.

        A server of an ensemble that lost its leader may leave one out. As with Java's client, the connection is opened
        again then, and nobody knows what became of the requests that were under way.
        """
        pending = self._client._pending
        if not pending or pending[0][-1] != header.xid:
            raise ConnectionDropped(f"an answer is missing: that to request {header.xid} came too early")
        return self._read_response(header, *args)

    def _hear(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._post(self._change, SessionState.SUSPENDED)
        elif state == KazooState.LOST:
            if self._client.client_state == KeeperState.AUTH_FAILED:
                logger.error("ZooKeeper refused the credentials")
            # kazoo would open a new session now; what was decided in this one must not go on in another.
            self._client._stopped.set()
            self._post(self._change, SessionState.EXPIRED)

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody is there to be told
            self._loop.call_soon_threadsafe(callback, *args)

    # In the thread of the watchdog

    def _watch_loop(self) -> None:
        seen, missed = -1, 0
        while not self._ending.wait(self.timeout_s / TICKS_PER_TIMEOUT):
            ticks = self._ticks
            missed = missed + 1 if ticks == seen else 0
            seen = ticks
            if missed >= MISSED_TICKS_MAX:
                stuck_s = missed * self.timeout_s / TICKS_PER_TIMEOUT
                logger.error("the event loop is stuck for %.1f s: the session with ZooKeeper is closed", stuck_s)
                break
        self._stop_client()
        self._post(self._change, SessionState.EXPIRED)
        self._post(self._end)

    def _stop_client(self) -> None:
        client = self._client
        try:
            if self._is_killed:
                client._stopped.set()
                client._queue.appendleft((_CONNECTION_DROP, None))
                client._connection._write_sock.send(b"\0")
                client._safe_close()
            elif client._stopped.is_set():  # the session has expired: there is nothing to tell ZooKeeper
                client._safe_close()
            else:
                client.stop()
            client.close()
        except Exception:
            logger.exception("the connection to ZooKeeper could not be closed")

    # On the event loop

    def _tick(self) -> None:
        self._ticks += 1
        self._ask_if_silent()
        if not self._ending.is_set():
            self._timer = self._loop.call_later(self.timeout_s / TICKS_PER_TIMEOUT, self._tick)

    def _ask_if_silent(self) -> None:
        """If the oldest request has had no answer for a session time-out, ask for anything.

        The answers come in the order of the requests. If that one is missing, the next answer shows it, and there may
        be none: who waits for the answer may be the only one who asks.
        """
        try:
            oldest = self._client._pending[0][-1]
        except IndexError:
            oldest = None
        is_silent = oldest is not None and oldest == self._oldest_request
        self._oldest_request, self._silent_ticks = oldest, self._silent_ticks + 1 if is_silent else 0
        if is_silent and self._silent_ticks % TICKS_PER_TIMEOUT == 0 and self._state is SessionState.CONNECTED:
            self._client.exists_async("/")

    def _handle_opened_connection(self, session_id: int, timeout_s: float) -> None:
        if self._was_connected and session_id != self._id:
            self._change(SessionState.EXPIRED)
            return
        self._id, self.timeout_s = session_id, timeout_s
        if not self._was_connected:
            self._was_connected = True
            self._state = SessionState.CONNECTED
            if not self.connected.done():
                self.connected.set_result(None)
        else:
            self._change(SessionState.CONNECTED)

    def _change(self, state: SessionState) -> None:
        if self._state in (state, SessionState.EXPIRED, SessionState.CLOSED):
            return
        self._state = state
        if state in (SessionState.EXPIRED, SessionState.CLOSED):
            if self._timer is not None:
                self._timer.cancel()
            self._ending.set()
            if not self.connected.done():
                self.connected.set_exception(SessionExpired("the session ended before it was open"))
                self.connected.exception()  # nobody may be waiting
        if self._was_connected:
            self._on_state(state)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def _make_own_acl(credentials: str) -> ACL:
    user, _, password = credentials.partition(":")
    return make_digest_acl(user, password, all=True)


class _EventWatch:
    """A watch as kazoo wants it. kazoo keeps watches in sets, so equal ones must be equal."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, event: object) -> None:
        self._watch()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _EventWatch) and other._watch == self._watch

    def __hash__(self) -> int:
        return hash(self._watch)
