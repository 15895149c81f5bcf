"""The one door to threads: work that would hold up the event loop (fsync, recovery, cold reads) leaves through it."""

import asyncio
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

LOADING_SWITCH_S = 0.0005
"""How long the event loop waits for the interpreter while a thread loads code: usually it is up to ten times that."""


class Offload(Protocol):
    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]: ...


class Threads:
    """An `Offload` on a few real threads; the simulator has one on virtual time."""

    def __init__(self, workers: int = 4) -> None:
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="ottla")

    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


def loaded(load: Callable[[], T]) -> T:
    """What `load` returns: a large library, loaded in a thread while the event loop goes on answering.

    The thread gives the interpreter back more often, and nobody looks for garbage meanwhile. What it made stays for
    good and is never looked at: a hundred thousand objects, which would be 50 ms without an answer each time.
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
