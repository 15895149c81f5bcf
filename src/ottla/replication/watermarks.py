"""The only "wait until": a number that moves forward, and those who wait for it.

Two kinds of waiting. `reach` is for one who knows the number it needs (a producer waits for its last offset to be
committed). `watch` is for one who wants to look again whenever the number moves (a consumer's long poll).
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

Watcher = Callable[[], None]


class Watermark:
    """Never goes back: a consumer that saw offset n must not be told that n does not exist."""

    __slots__ = ("_order", "_reaching", "_watchers", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self._reaching: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()  # waiters for the same value are woken in the order they came
        self._watchers: dict[Watcher, None] = {}

    def reach(self, value: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.value >= value:
            future.set_result(None)
        else:
            heapq.heappush(self._reaching, (value, next(self._order), future))
        return future

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def advance(self, value: int) -> None:
        if value <= self.value:
            return
        self.value = value
        reaching = self._reaching
        while reaching and reaching[0][0] <= value:
            future = heapq.heappop(reaching)[2]
            if not future.done():
                future.set_result(None)
        if self._watchers:
            self.wake()

    def wake(self) -> None:
        """Let every watcher look again, although the number did not move (leadership did, or the partition went)."""
        for watcher in tuple(self._watchers):
            watcher()

    def fail(self, error: Exception) -> None:
        """Nobody will move this number any more: those who wait for it are told so."""
        reaching, self._reaching = self._reaching, []
        for _, _, future in reaching:
            if not future.done():
                future.set_exception(error)
        self.wake()
