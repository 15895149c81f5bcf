"""Limits on new connections: how many are open, how many of one address, how many per second.

Connections above the first two limits are refused. Those above the rate are accepted and wait for their turn, as in
Kafka: a client notices nothing but the delay. The connections of one second may come at once, and those of ten seconds
may wait.
"""

from collections.abc import Mapping
from typing import Protocol

BURST_S = 1.0
WAIT_S_MAX = 10.0


class AddressRates(Protocol):
    """Quotas of new connections by address."""

    is_active: bool

    def admit(self, address: str) -> bool:
        """Count a new connection. False if the address is above its rate."""


class Limits(Protocol):
    @property
    def max_connections(self) -> int: ...
    @property
    def descriptors_for_connections(self) -> int: ...
    @property
    def max_connections_per_ip(self) -> int: ...
    @property
    def max_connections_per_ip_overrides(self) -> Mapping[str, int]: ...
    @property
    def max_connection_creation_rate(self) -> int: ...


class Admission:
    def __init__(self) -> None:
        self.host_names: dict[str, str] = {}
        """Address -> the host name by which max.connections.per.ip.overrides calls it."""
        self.is_open = True
        """False before the server is opened and once it stops. A connection that was still in its TLS handshake when
        the server began to stop would not be drained, so it is refused."""
        self.address_rates: AddressRates | None = None
        self._per_address: dict[str, int] = {}
        self._due_at = float("-inf")

    def find_refusal(self, address: str, connections: int, now: float, limits: Limits) -> str | None:
        """Why one more connection from this address is refused; None if it is not."""
        if not self.is_open:
            return "the broker is starting or stopping"
        here, allowed = self._per_address.get(address, 0), self._find_limit(address, limits)
        if connections >= limits.max_connections:
            return f"{connections} are open (max.connections)"
        if connections >= limits.descriptors_for_connections:
            return f"{connections} are open, and the process may open no more files (ulimit -n)"
        if here >= allowed:
            return f"it has {here} (max.connections.per.ip)"
        if limits.max_connection_creation_rate == 0 or self._due_at - now > WAIT_S_MAX:
            return "too many wait already (max.connection.creation.rate)"
        return None

    def count_arrival(self, address: str) -> str | None:
        """Count a connection that has just come, once. Returns why it is refused; None if it is not."""
        rates = self.address_rates
        if rates is not None and rates.is_active and not rates.admit(address):
            return "it opens them too fast (quota connection_creation_rate)"
        return None

    def _find_limit(self, address: str, limits: Limits) -> int:
        overrides = limits.max_connections_per_ip_overrides
        by_name = overrides.get(self.host_names.get(address, ""), limits.max_connections_per_ip)
        return overrides.get(address, by_name)

    def enter(self, address: str, now: float, limits: Limits) -> float:
        """Count a new connection. Returns the seconds that it has to wait for its turn."""
        self._per_address[address] = self._per_address.get(address, 0) + 1
        self._due_at = max(self._due_at, now - BURST_S) + 1 / limits.max_connection_creation_rate
        return max(self._due_at - now, 0.0)

    def leave(self, address: str) -> None:
        left = self._per_address[address] - 1
        if left:
            self._per_address[address] = left
        else:
            del self._per_address[address]
