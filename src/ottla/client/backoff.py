"""How long a client retries: until a deadline, with pauses that double. The only module here that reads a clock."""

import time
from collections.abc import Callable
from random import Random

PAUSE_MIN_S = 0.1
PAUSE_MAX_S = 1.0


def now_ms() -> int:
    """The wall clock in milliseconds, for the timestamps of records."""
    return time.time_ns() // 1_000_000


def elapsed_s() -> float:
    """A clock that only moves forward, in seconds, for how long a login lasts."""
    return time.monotonic()


class Backoff:
    """The pauses between the attempts at one operation, and when to give up."""

    def __init__(
        self,
        limit_s: float,
        random: Random,
        *,
        pause_s: float = PAUSE_MIN_S,
        pause_max_s: float = PAUSE_MAX_S,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self._random = random
        self._deadline_s = seconds() + limit_s
        self._pause_s = pause_s
        self._pause_max_s = pause_max_s
        self.limit_s = limit_s

    @property
    def left_s(self) -> float:
        return max(self._deadline_s - self._seconds(), 0.0)

    def pause(self) -> bool:
        """Sleep before the next attempt; False, without sleeping, once the deadline has passed.

        Pauses have jitter, so that many clients do not retry at the same moment.
        """
        left = self.left_s
        if left <= 0:
            return False
        self._sleep(min(self._pause_s * self._random.uniform(0.8, 1.2), left))
        self._pause_s = min(self._pause_s * 2, self._pause_max_s)
        return True

    def throttle(self, seconds: float) -> None:
        """Sleep because the broker asked for it (throttle_time_ms), but not beyond the deadline."""
        if seconds > 0:
            self._sleep(min(seconds, self.left_s))
