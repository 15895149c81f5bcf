"""This broker's connection to the coordination store: one session, and a new one when it has expired."""

import asyncio
import logging
from collections.abc import Callable
from random import Random

from ottla.cluster.store import Disconnected, SessionExpired, SessionState, Store, StoreSession

BACKOFF_S = 0.1
BACKOFF_DOUBLINGS_MAX = 5

NO_CONNECTION = "the broker has no connection to ZooKeeper"

logger = logging.getLogger(__name__)


class StoreConnection:
    """Keeps a session open until it is closed. Listeners hear of every change of its state."""

    def __init__(self, store: Store, random: Random) -> None:
        self._store = store
        self._random = random
        self._session: StoreSession | None = None
        self._listeners: list[Callable[[SessionState], None]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._reopening: asyncio.Task[None] | None = None
        self._is_closed = False

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    @property
    def store_name(self) -> str:
        return self._store.name

    @property
    def is_connected(self) -> bool:
        return self._session is not None and self._session.state is SessionState.CONNECTED

    @property
    def timeout_s(self) -> float:
        """The time-out of the session, as agreed with the store; 0 before the first session."""
        return 0.0 if self._session is None else self._session.timeout_s

    async def open(self) -> None:
        """Open the first session. StoreUnavailable if the store cannot be reached."""
        await self._open()

    def require(self) -> StoreSession:
        """The session, if it has a connection."""
        session = self._session
        if session is None or session.state is SessionState.SUSPENDED:
            raise Disconnected(NO_CONNECTION)
        if session.state is not SessionState.CONNECTED:
            raise SessionExpired("the broker's session with ZooKeeper is over")
        return session

    async def wait_until_connected(self) -> StoreSession:
        """The session, as soon as it has a connection. Waits without end while the store is away."""
        while not self.is_connected:
            if self._is_closed:
                raise SessionExpired("the connection to the store was closed")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self.require()

    async def close(self) -> None:
        """End the session. The store removes its ephemeral nodes at once, if it can be reached."""
        session = self._stop()
        if session is not None:
            await session.close()

    def abandon(self) -> None:
        """Drop the connection as a killed process would: the store keeps the session until its time-out."""
        session = self._stop()
        if session is not None:
            session.abandon()

    def _stop(self) -> StoreSession | None:
        self._is_closed = True
        self._listeners.clear()
        if self._reopening is not None:
            self._reopening.cancel()
        self._wake_waiters()
        return self._session

    async def _open(self) -> None:
        opened: list[StoreSession] = []

        def hear(state: SessionState) -> None:
            if opened and opened[0] is self._session:
                self._handle_change(state)

        session = await self._store.open(hear)
        if self._is_closed:
            session.abandon()
            return
        opened.append(session)
        self._session = session
        self._handle_change(session.state)

    def _handle_change(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and self._reopening is None and not self._is_closed:
            self._reopening = asyncio.get_running_loop().create_task(self._reopen(), name="new session of the store")
        for listener in list(self._listeners):
            listener(state)
        if state is SessionState.CONNECTED:
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _reopen(self) -> None:
        """Open a new session after the last one expired, as often as it takes."""
        attempts = 0
        try:
            while not self._is_closed and (self._session is None or self._session.state is SessionState.EXPIRED):
                try:
                    await self._open()
                except Exception as error:  # also what the process lacks: without a session the broker is lost
                    attempts += 1
                    if attempts == 1:
                        logger.warning("the store cannot be reached after the session expired: %s", error)
                    doublings = min(attempts, BACKOFF_DOUBLINGS_MAX)
                    await asyncio.sleep(BACKOFF_S * (0.5 + self._random.random()) * 2**doublings)
        finally:
            self._reopening = None
