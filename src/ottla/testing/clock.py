"""Time that a test can move, and the moment at which a broker has nothing left to do.

Wall clock and timers are the machine's plus one offset, so timestamps and time-outs jump together. A jump is no replay
of the time between: work that was due many times runs once, and everything sees the new time.
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
PUT_OFF_MAX = 100


class MovableClock(WallClock):
    def __init__(self, offset_ms: int = 0) -> None:
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


class WatchedThreads:
    """An `Offload` that knows whether any of its work is unfinished, also work that nobody waits for any more."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="ottla-testing")
        self._unfinished: dict[Future[Any], None] = {}

    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        job = self._executor.submit(function, *args)
        self._unfinished[job] = None
        job.add_done_callback(self._finished)  # before the loop's own callback: the loop wakes up to an empty table
        return asyncio.wrap_future(job)

    @property
    def busy(self) -> bool:
        return bool(self._unfinished)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _finished(self, job: Future[Any]) -> None:
        self._unfinished.pop(job, None)


class RestingSelector(DefaultSelector):
    """Knows when the loop rests: it is about to wait, no thread works for it, and nothing has come for it to read.

    A loop waits when no callback is ready and no timer is due. Clients that never pause put off a rest only so often.
    """

    def __init__(self, threads: WatchedThreads) -> None:
        super().__init__()
        self._threads = threads
        self._wanted: deque[Callable[[], None]] = deque()
        self._put_off = 0

    def when_resting(self, function: Callable[[], None]) -> None:
        """Run `function` on the loop's thread at its next rest. To be called on that thread."""
        self._wanted.append(function)

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if self._wanted and (timeout is None or timeout > 0) and not self._threads.busy:
            arrived = super().select(0)
            if arrived and self._put_off < PUT_OFF_MAX:
                self._put_off += 1
                return arrived
            self._put_off = 0
            self._wanted.popleft()()
            return arrived
        return super().select(timeout)


class MovableLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: MovableClock, threads: WatchedThreads) -> None:
        self._clock = clock
        self._resting = RestingSelector(threads)
        super().__init__(self._resting)

    def time(self) -> float:
        return super().time() + self._clock.offset_ms / 1000

    def when_resting(self, function: Callable[[], None]) -> None:
        """From any thread: run `function` on the loop's thread as soon as nothing is left to do."""
        self.call_soon_threadsafe(self._resting.when_resting, function)
