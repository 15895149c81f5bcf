"""Watches the event loop: how much of its time is idle, and how late it comes to new work.

A broker has one event loop, which is Kafka's network threads and request handlers at once. It is measured once a
second, and only on a broker with a metrics port.
"""

from collections import deque
from collections.abc import Callable

from ottla.observability.metrics import DurationMeter
from ottla.system.background import Job

INTERVAL_S = 1.0
SAMPLES = 60
"""The idle share is that of the last minute, as in Kafka."""


class LoopWatch:
    def __init__(self, now_s: Callable[[], float], busy_s: Callable[[], float]) -> None:
        """`busy_s`: processor time of the thread of the event loop, in which it is called."""
        self.delays = DurationMeter()
        self._now_s = now_s
        self._busy_s = busy_s
        self._samples: deque[tuple[float, float]] = deque([(now_s(), busy_s())], maxlen=SAMPLES + 1)

    def job(self) -> Job:
        return Job("measurement of the event loop", INTERVAL_S, self._measure)

    async def _measure(self) -> None:
        self.take_sample()

    def take_sample(self) -> None:
        now_s = self._now_s()
        before_s, _ = self._samples[-1]
        self.delays.count_duration(max(now_s - before_s - INTERVAL_S, 0.0))
        self._samples.append((now_s, self._busy_s()))

    @property
    def idle_share(self) -> float:
        """Between 0 and 1, over the last minute."""
        began_s, busy_before_s = self._samples[0]
        passed_s = self._now_s() - began_s
        if passed_s <= 0:
            return 1.0
        return min(max(1.0 - (self._busy_s() - busy_before_s) / passed_s, 0.0), 1.0)
