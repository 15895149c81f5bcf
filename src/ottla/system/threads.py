"""Threads for work that would block the event loop: fsync, recovery, reads of data that is not in the page cache.

Nothing else in the broker starts a thread.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

LOADING_SWITCH_S = 0.0005
"""Switch interval while a thread loads a library. The event loop waits this long for the interpreter lock; Python's
default is ten times as much."""


class Offload(Protocol):
    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]: ...


class Threads:
    """An `Offload` on a few real threads. The simulator has one of its own that runs on virtual time."""

    def __init__(self, workers: int = 4) -> None:
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="ottla")

    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


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
