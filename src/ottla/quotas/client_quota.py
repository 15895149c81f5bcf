"""One kind of quota: a sensor for each client that has one, and how long a client has to wait.

Memory is bounded whatever client ids clients invent. A sensor that nothing was recorded in for an hour is removed, as
in Kafka. If there are SENSORS_MAX of them, those are removed whose windows are over: they know nothing that counts. If
all are in use, clients without a sensor share one, so that new names give nobody more than their number allows.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.quotas.rates import Rate, TokenBucket, Windows
from ottla.quotas.table import NO_QUOTAS, Limit, QuotaTable, Who

SENSORS_MAX = 10_000
IDLE_MS = 3_600_000
SEARCH_PAUSE_MS = 1000
"""Until idle sensors are looked for again if there are SENSORS_MAX, because that takes a millisecond."""
SHARED = Who(None, None)
"""Whose sensor it is that clients share when there are too many of them."""

INT_MAX = (1 << 31) - 1


class Sensor:
    """The consumption of one client, or of all that share a quota."""

    __slots__ = ("limit", "rate", "throttled", "throttled_ms", "tokens", "used_ms")

    def __init__(self, windows: Windows, limit: float, now_ms: float) -> None:
        self.rate = Rate(windows)
        self.limit = limit
        self.used_ms = now_ms
        self.tokens: TokenBucket | None = None
        self.throttled = 0
        self.throttled_ms = 0


class SensorReading(NamedTuple):
    """What metrics show of a sensor."""

    who: Who
    rate: float
    limit: float
    throttled: int
    throttled_ms: int
    tokens: float


class ClientQuota:
    """One kind of quota. `is_active`: whether anybody has one. Nothing else is asked for by those who have none."""

    def __init__(self, windows: Windows, now: Callable[[], float], throttle_ms_max: float = INT_MAX) -> None:
        """`now`: the event loop's clock, in seconds."""
        self.is_active = False
        self._windows = windows
        self._now = now
        self._throttle_ms_max = throttle_ms_max
        self._table = NO_QUOTAS
        self._sensors: dict[Who, Sensor] = {}
        self._search_again_ms = 0.0

    def __len__(self) -> int:
        return len(self._sensors)

    def follow(self, table: QuotaTable) -> None:
        """Quotas have changed. What was consumed before still counts."""
        self._table = table
        self.is_active = len(table) > 0
        if not self.is_active:
            self._sensors.clear()

    def record(self, user: str, client_id: str | None, value: float) -> int:
        """Count consumption. Returns for how many milliseconds the client must be silent; 0 if it may go on."""
        found = self._table.find(user, client_id or "")
        if found is None:
            return 0
        now_ms = self._now() * 1000
        sensor = self._find_sensor(found, now_ms)
        sensor.rate.record(value, sensor.limit, now_ms)
        return self._find_throttle(sensor, now_ms)

    def record_if_allowed(self, user: str, client_id: str | None, value: float) -> int:
        """Like `record`, but what makes the client exceed its quota is not counted: it will not be sent.

        What alone is more than the quota of all windows is let through if nothing else counts: it would never be sent.
        """
        found = self._table.find(user, client_id or "")
        if found is None:
            return 0
        now_ms = self._now() * 1000
        sensor = self._find_sensor(found, now_ms)
        sensor.rate.measure(now_ms)
        was_empty = sensor.rate.is_empty
        sensor.rate.record(value, sensor.limit, now_ms)
        throttle_ms = self._find_throttle(sensor, now_ms, count=not was_empty)
        if not throttle_ms or was_empty:
            return 0
        sensor.rate.record(-value, sensor.limit, now_ms)
        return throttle_ms

    def find_most(self, user: str, client_id: str | None) -> int:
        """The most that the client may be sent now without exceeding its quota.

        In Kafka it is what a client may be sent that was idle. A client whose answers are as large as that gets one of
        them in two windows, which is half of its quota.
        """
        found = self._table.find(user, client_id or "")
        if found is None:
            return INT_MAX
        now_ms = self._now() * 1000
        sensor = self._find_sensor(found, now_ms)
        return int(min(sensor.rate.find_room(sensor.limit, now_ms), INT_MAX))

    def take_tokens(self, user: str, client_id: str | None, count: float, *, strict: bool) -> int:
        """Take from the client's token bucket. Returns the milliseconds until it is not overdrawn any more.

        If `strict`, nothing is taken from a bucket that is overdrawn already: the action must be refused.
        """
        found = self._table.find(user, client_id or "")
        if found is None:
            return 0
        now_ms, limit = self._now() * 1000, found.value
        sensor = self._find_sensor(found, now_ms)
        if sensor.tokens is None:
            sensor.tokens = TokenBucket(self._windows, limit, now_ms)
        throttle_ms = round(sensor.tokens.find_throttle_ms(limit, now_ms))
        if not (strict and throttle_ms):
            sensor.tokens.take(count, limit, now_ms)
            sensor.rate.record(count, limit, now_ms)
            throttle_ms = 0 if strict else round(sensor.tokens.find_throttle_ms(limit, now_ms))
        if throttle_ms:
            sensor.throttled += 1
            sensor.throttled_ms += throttle_ms
        return throttle_ms

    def expire(self) -> None:
        """Remove the sensors of clients that are gone."""
        self._remove_idle(self._now() * 1000 - IDLE_MS)

    def read(self) -> Iterator[SensorReading]:
        """Every sensor, for metrics."""
        now_ms = self._now() * 1000
        for who, sensor in self._sensors.items():
            tokens = 0.0 if sensor.tokens is None else sensor.tokens.refill(sensor.limit, now_ms)
            rate = sensor.rate.measure(now_ms)
            yield SensorReading(who, rate, sensor.limit, sensor.throttled, sensor.throttled_ms, tokens)

    def _find_throttle(self, sensor: Sensor, now_ms: float, count: bool = True) -> int:
        exact = sensor.rate.find_throttle_ms(sensor.limit, now_ms)
        throttle_ms = min(round(exact), self._throttle_ms_max)
        if throttle_ms and count:
            sensor.throttled += 1
            sensor.throttled_ms += int(throttle_ms)
        return int(throttle_ms)

    def _find_sensor(self, found: Limit, now_ms: float) -> Sensor:
        sensor = self._sensors.get(found.who)
        if sensor is None:
            sensor = self._add_sensor(found, now_ms)
        sensor.limit = found.value
        sensor.used_ms = now_ms
        return sensor

    def _add_sensor(self, found: Limit, now_ms: float) -> Sensor:
        who = found.who
        if len(self._sensors) >= SENSORS_MAX and now_ms >= self._search_again_ms:
            self._search_again_ms = now_ms + SEARCH_PAUSE_MS
            self._remove_idle(now_ms - self._windows.all_ms)
        if len(self._sensors) >= SENSORS_MAX:
            who = SHARED
        sensor = self._sensors.get(who)
        if sensor is None:
            sensor = self._sensors[who] = Sensor(self._windows, found.value, now_ms)
        return sensor

    def _remove_idle(self, before_ms: float) -> None:
        for who in [who for who, sensor in self._sensors.items() if sensor.used_ms <= before_ms]:
            del self._sensors[who]
