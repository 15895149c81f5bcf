"""Wall-clock time, as the broker sees it. Waiting is the event loop's business, never this one's."""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...


class WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


stopwatch: Callable[[], float] = time.perf_counter
"""Seconds since some moment: for metrics of how long things took, never for what is decided, awaited or stored."""
