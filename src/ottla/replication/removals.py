"""Files and directories that were deleted: each is removed from the disk in a thread after its delay."""

import asyncio
import heapq
import logging
from collections.abc import Callable
from itertools import count

from ottla.replication.partition import Partition
from ottla.storage.disk_errors import is_failure
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)

RETRY_MS = 10_000
"""Delay of the next attempt after the disk or the process ran short of something."""


class Removals:
    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._seconds = asyncio.get_running_loop().time
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def add(self, delay_ms: int, remove: Callable[[], None]) -> None:
        """Call `remove` in a thread when the delay is over."""
        heapq.heappush(self._waiting, (self._seconds() + delay_ms / 1000, next(self._order), remove))

    def take_dropped(self, partition: Partition) -> None:
        """Remove the files that the partition's log has dropped, after file.delete.delay.ms."""
        files = partition.log.files
        if files.has_deleted:
            self.add(partition.config.file_delete_delay_ms, files.take_deleted().run)

    async def run_due(self, now: float | None = None) -> None:
        """Remove what is due. One after the other: nobody waits for it, and requests need the disk."""
        now = self._seconds() if now is None else now
        while self._waiting and self._waiting[0][0] <= now:
            remove = heapq.heappop(self._waiting)[2]
            try:
                await self._offload(remove)
            except OSError as error:
                if is_failure(error):
                    logger.warning("%s; it is removed when the broker starts again", error)
                else:
                    logger.warning("%s; it is removed later", error)
                    self.add(RETRY_MS, remove)
