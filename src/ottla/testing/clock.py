"""A clock and an event loop whose time a test can move, and detection of when a broker has no work left.

The wall clock and the loop's timers are those of the machine plus the same offset, so timestamps and time-outs move
together. Moving the clock does not replay the time in between: periodic work that was due many times runs once, at the
new time.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from selectors import DefaultSelector, SelectorKey
from typing import Any, TypeVar

from ottla.system.clock import WallClock

T = TypeVar("T")

WORKERS = 4
POSTPONED_MAX = 100


class MovableClock(WallClock):
    def __init__(self, offset_ms: int = 0) -> None:
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


class WatchedThreads:
    """An `Offload` that knows whether any of its work is unfinished, including work that nobody awaits any more."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="ottla-testing")
        self._unfinished: dict[Future[Any], None] = {}

    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        job = self._executor.submit(function, *args)
        self._unfinished[job] = None
        job.add_done_callback(self._remove)  # runs before the loop is woken up, so the loop sees that the work is done
        return asyncio.wrap_future(job)

    @property
    def is_busy(self) -> bool:
        return bool(self._unfinished)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _remove(self, job: Future[Any]) -> None:
        self._unfinished.pop(job, None)


class IdleSelector(DefaultSelector):
    """Runs functions when the loop is idle: no callback is ready, no timer is due, no thread works for the loop, and no
    socket is readable.

    Clients that send without a pause can postpone a function at most POSTPONED_MAX times.
    """

    def __init__(self, threads: WatchedThreads) -> None:
        super().__init__()
        self._threads = threads
        self._waiting: deque[Callable[[], None]] = deque()
        self._postponed = 0

    def call_when_idle(self, function: Callable[[], None]) -> None:
        """Runs `function` on the loop's thread when the loop is idle. Must be called on that thread."""
        self._waiting.append(function)

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if self._waiting and (timeout is None or timeout > 0) and not self._threads.is_busy:
            arrived = super().select(0)
            if arrived and self._postponed < POSTPONED_MAX:
                self._postponed += 1
                return arrived
            self._postponed = 0
            self._waiting.popleft()()
            return arrived
        return super().select(timeout)


class MovableLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: MovableClock, threads: WatchedThreads) -> None:
        self._clock = clock
        self._idle_selector = IdleSelector(threads)
        super().__init__(self._idle_selector)

    def time(self) -> float:
        return super().time() + self._clock.offset_ms / 1000

    async def _accept_connection2(
        self, protocol_factory: Any, conn: Any, extra: Any, sslcontext: Any = None, server: Any = None, *rest: Any
    ) -> None:
        """Closes a connection whose listener was closed since it was accepted. asyncio would leave it open."""
        if server is not None and not server.sockets:
            conn.close()
            return
        await super()._accept_connection2(  # type: ignore[misc]
            protocol_factory, conn, extra, sslcontext, server, *rest
        )

    def call_when_idle(self, function: Callable[[], None]) -> None:
        """Runs `function` on the loop's thread when the loop is idle. Can be called on any thread."""
        self.call_soon_threadsafe(self._idle_selector.call_when_idle, function)
