"""An offset that only moves forward, and requests that wait for it: the one "wait until" of the broker.

`reach` is for a caller that knows which offset it needs: a producer waits until its last offset is committed.
`watch` is for a caller that wants to look again whenever the offset moves: the long poll of a consumer.
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

Watcher = Callable[[], None]


class Signal:
    """Calls every watcher when something happens. Whoever calls `wake` often asks first whether anybody watches."""

    __slots__ = ("watchers",)

    def __init__(self) -> None:
        self.watchers: dict[Watcher, None] = {}

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` at every `wake`, until `unwatch`."""
        self.watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self.watchers.pop(watcher, None)

    def wake(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()


class Watermark(Signal):
    """An offset. It never moves back, except by `retreat`: a consumer that has seen offset n must not learn that n does
    not exist.

    Watchers are called at every move, and by `wake` when the leader changed or the partition is gone.
    """

    __slots__ = ("_order", "_reaching", "value")

    def __init__(self, value: int) -> None:
        super().__init__()
        self.value = value
        self._reaching: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()  # waiters for the same offset are woken in the order they came

    def reach(self, value: int) -> asyncio.Future[None]:
        """A future that is done when the offset is `value` or more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.value >= value:
            future.set_result(None)
        else:
            heapq.heappush(self._reaching, (value, next(self._order), future))
        return future

    def advance(self, value: int) -> None:
        if value <= self.value:
            return
        self.value = value
        reaching = self._reaching
        while reaching and reaching[0][0] <= value:
            future = heapq.heappop(reaching)[2]
            if not future.done():
                future.set_result(None)
        if self.watchers:
            self.wake()

    def retreat(self, value: int, error: Exception) -> None:
        """The log was truncated to `value`. Every future of `reach` raises `error`: its records are gone."""
        if value < self.value:
            self.value = value
        self.fail(error)

    def fail(self, error: Exception) -> None:
        """The offset will not move any more: every future of `reach` raises `error`."""
        reaching, self._reaching = self._reaching, []
        for _, _, future in reaching:
            if not future.done():
                future.set_exception(error)
        self.wake()
