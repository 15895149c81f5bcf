"""The one door to threads: work that would hold up the event loop (fsync, recovery, cold reads) leaves through it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


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
