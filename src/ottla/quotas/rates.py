"""Measures of consumption: a rate over the last windows, and a token bucket. Times are in milliseconds.

A rate is the sum of what was recorded in the last windows, divided by the time since the oldest of them began.
A client that begins is measured as if all windows but the last were over already, so it may send what it is allowed for
ten seconds (with Kafka's defaults) before it is throttled for the first time.

So far this is Kafka's measure. It forgets what is older than the windows, also if nobody has waited for it yet: of 30
connections that share a quota each is told to wait for less than it takes until all have had their turn, and together
they get 140 % of the quota. So what is above the limit is remembered as a debt too, of which time pays off as much as
the limit allows. It is bounded, so that nobody waits for long because of others who went away.
"""

from collections import deque
from typing import NamedTuple


class Windows(NamedTuple):
    """How many windows count, the current one included, and how long each is."""

    number: int
    ms: int

    @property
    def all_ms(self) -> int:
        return self.number * self.ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, start_ms: float) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.value = 0.0


class Rate:
    """What was recorded per second."""

    __slots__ = ("_debt", "_paid_ms", "_samples", "_total", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        self._total = 0.0
        self._debt = 0.0
        self._paid_ms = 0.0

    def record(self, value: float, limit: float, now_ms: float) -> None:
        """Count a value; a negative one takes back what was counted before."""
        self._pay(limit, now_ms)
        self._debt = min(self._debt + value, limit * 2 * self._windows.all_ms / 1000)
        samples = self._samples
        self._forget_old(now_ms)
        if not samples or now_ms - samples[-1].start_ms >= self._windows.ms:
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.value += value
        sample.last_ms = now_ms
        self._total += value

    def measure(self, now_ms: float) -> float:
        """The rate per second."""
        window_ms = self.measure_window(now_ms)
        return self._total / window_ms * 1000

    def measure_window(self, now_ms: float) -> float:
        """The milliseconds over which the rate is measured at this moment."""
        self._forget_old(now_ms)
        number, ms = self._windows
        elapsed = now_ms - self._samples[0].start_ms if self._samples else 0.0
        elapsed += max(number - 1 - int(elapsed // ms), 0) * ms
        return max(elapsed, 1.0)

    def find_throttle_ms(self, limit: float, now_ms: float) -> float:
        """How long nothing may be recorded until the rate is at the limit again; 0 if it is not above it."""
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0.0
        self._pay(limit, now_ms)
        free_ms = (self._windows.number - 1) * self._windows.ms
        return max((rate - limit) / limit * self.measure_window(now_ms), self._debt / limit * 1000 - free_ms)

    def find_room(self, limit: float, now_ms: float) -> float:
        """How much may be recorded now without exceeding the limit."""
        return max(limit * self.measure_window(now_ms) / 1000 - self._total, 0.0)

    def _pay(self, limit: float, now_ms: float) -> None:
        self._debt = max(self._debt - limit * (now_ms - self._paid_ms) / 1000, 0.0)
        self._paid_ms = now_ms

    @property
    def is_empty(self) -> bool:
        """Whether nothing counts any more; of what was recorded before the last call of another method."""
        return self._total <= 0

    def _forget_old(self, now_ms: float) -> None:
        samples, oldest_ms = self._samples, now_ms - self._windows.all_ms
        while samples and samples[0].last_ms <= oldest_ms:
            self._total -= samples.popleft().value
        if not samples:
            self._total = 0.0  # without what is left of the rounding of floats


class TokenBucket:
    """Tokens that come back with time, up to those of all windows. It may be overdrawn by one request."""

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows, limit: float, now_ms: float) -> None:
        self._windows = windows
        self._tokens = self._find_burst(limit)
        self._last_ms = now_ms

    def _find_burst(self, limit: float) -> float:
        return self._windows.all_ms / 1000 * limit

    def refill(self, limit: float, now_ms: float) -> float:
        """The tokens at this moment."""
        gained = limit * (now_ms - self._last_ms) / 1000
        self._tokens = min(self._tokens + gained, self._find_burst(limit))
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: float) -> None:
        self.refill(limit, now_ms)
        self._tokens -= count

    def find_throttle_ms(self, limit: float, now_ms: float) -> float:
        """How long it takes until the bucket is not overdrawn any more."""
        tokens = self.refill(limit, now_ms)
        return 0.0 if tokens >= 0 else -tokens / limit * 1000
