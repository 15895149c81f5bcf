"""Connections per second of one address (connection_creation_rate).

A connection above the rate is closed at once. Kafka closes it too, after the time for which the address has to wait.
"""

from collections.abc import Callable, Mapping

from ottla.cluster.changes import QuotaName
from ottla.cluster.quotas import CONNECTION_CREATION_RATE, IP, normalize_address
from ottla.quotas.client_quota import SEARCH_PAUSE_MS, SENSORS_MAX
from ottla.quotas.rates import Rate, Windows


class AddressRates:
    """`is_active`: whether any address, or the default, has a quota."""

    def __init__(self, windows: Windows, now: Callable[[], float]) -> None:
        self.is_active = False
        self.refused = 0
        self._windows = windows
        self._now = now
        self._limits: Mapping[str, float] = {}
        self._default: float | None = None
        self._rates: dict[str, Rate] = {}
        self._search_again_ms = 0.0

    def __len__(self) -> int:
        return len(self._rates)

    def follow(self, quotas: Mapping[tuple[QuotaName, ...], Mapping[str, float]]) -> None:
        """Quotas have changed."""
        limits: dict[str | None, float] = {
            name if name is None else normalize_address(name): values[CONNECTION_CREATION_RATE]
            for entity, values in quotas.items()
            for kind, name in entity
            if kind == IP and CONNECTION_CREATION_RATE in values
        }
        self._default = limits.pop(None, None)
        self._limits = {name: value for name, value in limits.items() if name is not None}
        self.is_active = bool(self._limits) or self._default is not None
        if not self.is_active:
            self._rates.clear()

    def admit(self, address: str) -> bool:
        """Count a new connection. False if it is above the address's rate: then it does not count."""
        limit = self._limits.get(address, self._default)
        if limit is None:
            return True
        now_ms = self._now() * 1000
        rate = self._rates.get(address)
        if rate is None:
            if len(self._rates) >= SENSORS_MAX and now_ms >= self._search_again_ms:
                self._search_again_ms = now_ms + SEARCH_PAUSE_MS
                self._remove_idle(now_ms)
            if len(self._rates) >= SENSORS_MAX:  # nobody has so many addresses who means well
                self.refused += 1
                return False
            rate = self._rates[address] = Rate(self._windows)
        rate.record(1, limit, now_ms)
        if not rate.find_throttle_ms(limit, now_ms):
            return True
        rate.record(-1, limit, now_ms)
        self.refused += 1
        return False

    def read(self) -> list[tuple[str, float]]:
        """Connections per second of each address that has a quota, for metrics."""
        now_ms = self._now() * 1000
        return [(address, rate.measure(now_ms)) for address, rate in self._rates.items()]

    def expire(self) -> None:
        self._remove_idle(self._now() * 1000)

    def _remove_idle(self, now_ms: float) -> None:
        for address, rate in list(self._rates.items()):
            if rate.measure(now_ms) <= 0:
                del self._rates[address]
