"""Threads for work that would block the event loop: fsync, recovery, reads of data that is not in the page cache.

Nothing else in the broker starts a thread.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

LOADING_SWITCH_S = 0.0005
"""Switch interval while a thread loads a library. The event loop waits this long for the interpreter lock; Python's
default is ten times as much."""


class Offload(Protocol):
    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]: ...


class Threads:
    """An `Offload` on a few real threads. The simulator has one of its own that runs on virtual time.

    An executor of the standard library would take twice as much of the event loop for each call, and a TLS handshake
    would cost 5 % more CPU.
    """

    def __init__(self, workers: int = 4) -> None:
        self._workers = workers
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._unfinished = 0
        self._is_closed = False

    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        if self._is_closed:
            raise RuntimeError("the threads have been closed")
        loop = asyncio.get_running_loop()
        job = _Job(loop, loop.create_future(), function, args)
        self._unfinished += 1
        if self._unfinished > len(self._threads) < self._workers:
            thread = Thread(target=self._run, name=f"ottla_{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._jobs.put(job)
        return job.future

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: Any = None
            failure: BaseException | None = None
            if not job.future.cancelled():
                try:
                    result = job.function(*job.args)
                except BaseException as error:
                    failure = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                job.loop.call_soon_threadsafe(self._finish, job.future, result, failure)
            del job, result, failure  # while the thread waits, it keeps nothing

    def _finish(self, future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
        self._unfinished -= 1
        if future.cancelled():
            return
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)

    def close(self) -> None:
        """Wait for what has begun. What has not is never done."""
        self._is_closed = True
        with suppress(Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is not None:
                    job.future.cancel()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]
    function: Callable[..., T]
    args: tuple[Any, ...]


async def wait_out(work: "asyncio.Future[T]", interrupt: Callable[[], None] | None = None) -> T:
    """Wait for work in a thread. Who is cancelled waits all the same until it is over and touches no file any more.

    `interrupt` is called in this case, and may shorten the wait.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(retrieve_exception)
        if interrupt is not None:
            interrupt()
        await asyncio.wait([work])
        raise


def retrieve_exception(work: "asyncio.Future[Any]") -> None:
    """Keep asyncio from logging that nobody has asked why this work failed: whoever waited for it was cancelled."""
    if not work.cancelled():
        work.exception()


def load_library(load: Callable[[], T]) -> T:
    """Run `load`, which imports a large library, without long pauses of the event loop. Call it in a thread.

    The thread gives the interpreter lock back more often than usual, and the garbage collector is off meanwhile. The
    hundred thousand objects that a library makes live as long as the process, so they are frozen: if every collection
    looked at them, it would stop the broker for 50 ms.
    """
    interval, collecting = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(LOADING_SWITCH_S)
    gc.disable()
    try:
        return load()
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
        sys.setswitchinterval(interval)
