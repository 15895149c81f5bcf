"""Wall-clock time, as the broker sees it. Waiting is the event loop's business, never this one's."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)


class Clock(Protocol):
    def now_ms(self) -> int: ...


class WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


stopwatch: Callable[[], float] = time.perf_counter
"""Seconds since some moment: for metrics of how long things took, never for what is decided, awaited or stored."""


class SteadyClock:
    """Now, for whoever deletes what is old: the wall clock, but it never runs faster than twice as fast as time passes.

    A clock that is set forward by mistake would otherwise make everything old at once. A machine that slept catches up
    in the time that it slept, and a clock that is set back is followed at once: then too much is kept, for a while.
    """

    _WORTH_TELLING_MS = 60_000

    def __init__(self, wall: Clock, seconds: Callable[[], float]) -> None:
        """`seconds` since some moment, of a clock that nobody sets."""
        self._wall = wall
        self._seconds = seconds
        self._seen_s = seconds()
        self._seen_ms = wall.now_ms()
        self._behind = False

    def now_ms(self) -> int:
        seconds, wall_ms = self._seconds(), self._wall.now_ms()
        passed_ms = max(int((seconds - self._seen_s) * 1000), 0)
        self._seen_s = seconds
        self._seen_ms = min(wall_ms, self._seen_ms + 2 * passed_ms)
        self._tell(wall_ms - self._seen_ms)
        return self._seen_ms

    def _tell(self, behind_ms: int) -> None:
        if behind_ms > self._WORTH_TELLING_MS and not self._behind:
            logger.warning("the clock was set forward by %d s: what is old is told by a slower one", behind_ms // 1000)
            self._behind = True
        elif not behind_ms and self._behind:
            logger.info("the clock is believed again")
            self._behind = False
