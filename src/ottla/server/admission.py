"""Who may come in: how many connections at once, how many of one address, how many per second.

Too many at once are refused. Too many per second are let in and wait for their turn, as in Kafka: a client notices
nothing but the delay. A second's worth of them may come at one moment, and ten seconds' worth may wait.
"""

from collections.abc import Mapping
from typing import Protocol

BURST_S = 1.0
WAIT_S_MAX = 10.0


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
        """Address -> the name under which the settings know it."""
        self.closed = False
        """The server stops: whoever was still agreeing on TLS comes too late, and would not be told to go."""
        self._per_address: dict[str, int] = {}
        self._due_at = float("-inf")

    def refusal(self, address: str, connections: int, now: float, limits: Limits) -> str | None:
        """Why there is no room for one more connection of this address, if there is none."""
        if self.closed:
            return "the broker stops"
        here, allowed = self._per_address.get(address, 0), self._allowed(address, limits)
        if connections >= limits.max_connections:
            return f"{connections} are open (max.connections)"
        if connections >= limits.descriptors_for_connections:
            return f"{connections} are open, and the process may have no more files (ulimit -n)"
        if here >= allowed:
            return f"it has {here} (max.connections.per.ip)"
        if limits.max_connection_creation_rate == 0 or self._due_at - now > WAIT_S_MAX:
            return "too many wait already (max.connection.creation.rate)"
        return None

    def _allowed(self, address: str, limits: Limits) -> int:
        overrides = limits.max_connections_per_ip_overrides
        by_name = overrides.get(self.host_names.get(address, ""), limits.max_connections_per_ip)
        return overrides.get(address, by_name)

    def enter(self, address: str, now: float, limits: Limits) -> float:
        """Count a connection in; how many seconds it has to wait for its turn."""
        self._per_address[address] = self._per_address.get(address, 0) + 1
        self._due_at = max(self._due_at, now - BURST_S) + 1 / limits.max_connection_creation_rate
        return max(self._due_at - now, 0.0)

    def leave(self, address: str) -> None:
        left = self._per_address[address] - 1
        if left:
            self._per_address[address] = left
        else:
            del self._per_address[address]
