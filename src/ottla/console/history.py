"""An hour of samples, in memory: the console's only state. Charts and rates are made from it."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

SECONDS = 3_600
INTERVAL_S = 5
SAMPLES_MAX = SECONDS // INTERVAL_S
SERIES_MAX = 5_000
RATE_S = 30
"""Over how many seconds a rate is computed."""


class Sample(NamedTuple):
    time_ms: int
    value: float


class History:
    """Series of samples by name, such as ("group-lag", "billing"). A series that gets no more samples runs empty."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], deque[Sample]] = {}
        self._wanted: dict[tuple[str, str], int] = {}

    def add(self, kind: str, name: str, time_ms: int, value: float) -> None:
        series = self._series.get((kind, name))
        if series is None:
            if len(self._series) >= SERIES_MAX:
                return
            series = self._series[kind, name] = deque(maxlen=SAMPLES_MAX)
        series.append(Sample(time_ms, value))

    def series(self, kind: str, name: str) -> list[Sample]:
        return list(self._series.get((kind, name), ()))

    def rate(self, kind: str, name: str) -> float | None:
        """By how much a counter grew a second, lately; None with less than two samples."""
        samples = self.series(kind, name)
        if len(samples) < 2:
            return None
        begin = max(bisect_left(samples, Sample(samples[-1].time_ms - RATE_S * 1000, 0.0)), 0)
        return _rate_between(samples[min(begin, len(samples) - 2)], samples[-1])

    def rates(self, kind: str, name: str) -> list[Sample]:
        """The growth a second between each two samples of a counter."""
        samples = self.series(kind, name)
        return [Sample(later.time_ms, _rate_between(earlier, later)) for earlier, later in pairwise(samples)]

    def want(self, kind: str, name: str, now_ms: int) -> None:
        """Somebody looks at this series: it is sampled for an hour, also in a cluster that is too large to sample."""
        self._wanted[kind, name] = now_ms

    def wanted(self, kind: str, now_ms: int) -> list[str]:
        self._wanted = {key: seen for key, seen in list(self._wanted.items()) if now_ms - seen < SECONDS * 1000}
        return sorted(name for (found, name) in self._wanted if found == kind)

    def drop_old(self, now_ms: int) -> None:
        """Forget series that have had no sample for an hour: what they were about is gone."""
        for key, series in list(self._series.items()):
            if now_ms - series[-1].time_ms > SECONDS * 1000:
                del self._series[key]


def _rate_between(earlier: Sample, later: Sample) -> float:
    seconds = (later.time_ms - earlier.time_ms) / 1000
    return max(later.value - earlier.value, 0.0) / seconds if seconds > 0 else 0.0


def to_columns(series: Iterable[Iterable[Sample]]) -> list[list[float | None]]:
    """Several series over one axis of seconds, as uPlot wants them: times first, then the values of each series."""
    tables = [{sample.time_ms // 1000: sample.value for sample in each} for each in series]
    times = sorted({time for table in tables for time in table})
    return [[float(time) for time in times], *([table.get(time) for time in times] for table in tables)]
