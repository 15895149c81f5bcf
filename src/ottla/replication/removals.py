"""Files and directories on their way out: each is removed in a thread when its time has come."""

import heapq
import logging
from collections.abc import Callable
from itertools import count

from ottla.system.threads import Offload

logger = logging.getLogger(__name__)


class Removals:
    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, due: float, remove: Callable[[], None]) -> None:
        heapq.heappush(self._waiting, (due, next(self._order), remove))

    async def run_due(self, now: float) -> None:
        """One after the other: nobody waits for it, and those who use the disk should not have to."""
        while self._waiting and self._waiting[0][0] <= now:
            remove = heapq.heappop(self._waiting)[2]
            try:
                await self._offload(remove)
            except OSError as error:
                logger.warning("%s; it is removed when the broker starts again", error)
