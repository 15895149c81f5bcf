"""Wall-clock time as the broker sees it. Waiting is never done here: that is what the event loop is for."""

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
"""Seconds since an arbitrary moment. Only for metrics of how long something took: never decide, wait or store by it."""


thread_seconds: Callable[[], float] = time.thread_time
"""Seconds of processor time that the calling thread has used. Only for metrics."""


class SteadyClock:
    """The clock by which retention and expiry measure age: the wall clock, limited to twice real time.

    A wall clock that is set forward by mistake would otherwise make everything old at once. After a machine slept for
    an hour this clock catches up within an hour. A wall clock that is set back is followed at once; data is then kept
    for longer than it should be.
    """

    _LOGGED_FROM_MS = 60_000

    def __init__(self, wall: Clock, seconds: Callable[[], float]) -> None:
        """`seconds` is a monotonic clock."""
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
        self._log_lag(wall_ms - self._seen_ms)
        return self._seen_ms

    def _log_lag(self, behind_ms: int) -> None:
        if behind_ms > self._LOGGED_FROM_MS and not self._behind:
            logger.warning(
                "the clock was set forward by %d s: retention follows it at twice real time", behind_ms // 1000
            )
            self._behind = True
        elif not behind_ms and self._behind:
            logger.info("retention has caught up with the clock")
            self._behind = False
