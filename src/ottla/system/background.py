"""Background jobs: each job of the broker's table runs repeatedly, at its interval, until the broker stops."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

logger = logging.getLogger(__name__)


class Job(NamedTuple):
    name: str
    interval_s: float | Callable[[], float]
    """Seconds between two runs, or a function that returns them if they may change while the broker runs."""
    run: Callable[[], Awaitable[None]]
    first_s: float | None = None
    """Seconds until the first run; None: one interval."""


class Background:
    def __init__(self, jobs: Sequence[Job]) -> None:
        self._tasks = [asyncio.get_running_loop().create_task(_repeat(job), name=job.name) for job in jobs]

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Cancel every job and wait until none runs."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _repeat(job: Job) -> None:
    wait_s = job.first_s
    while True:
        interval_s = job.interval_s() if callable(job.interval_s) else job.interval_s
        await asyncio.sleep(interval_s if wait_s is None else wait_s)
        wait_s = None
        try:
            await job.run()
        except Exception:
            logger.exception("background job %r failed; it runs again in %.0f s", job.name, interval_s)
