"""The values that clients have pushed, for the metrics page. Their number and the length of their names are bounded.

A gauge has the last value. Sums are added up, because clients push what came since their last push; a client that
pushes totals all the same replaces them.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.telemetry.otlp import Point

SERIES_MAX = 10_000
SERIES_OF_CLIENT_MAX = 1_000
NAME_LENGTH_MAX = 200


class Key(NamedTuple):
    name: str
    attributes: str


class ClientSeries:
    """The series of one client."""

    __slots__ = ("client_id", "gauges", "sums")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.gauges: dict[Key, float] = {}
        self.sums: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self.gauges) + len(self.sums)


class Series:
    """The series of all clients, by instance id."""

    def __init__(self) -> None:
        self.left_out = 0
        """Values that were thrown away because there are too many series."""
        self._clients: dict[bytes, ClientSeries] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, instance_id: bytes, client_id: str, points: Iterable[Point]) -> None:
        client = self._clients.get(instance_id)
        if client is None:
            client = self._clients[instance_id] = ClientSeries(client_id)
        for point in points:
            text = ",".join(f"{key}={value}" for key, value in point.attributes)
            key = Key(point.name[:NAME_LENGTH_MAX], text[:NAME_LENGTH_MAX])
            values = client.sums if point.is_sum else client.gauges
            if key not in values:
                if self._count >= SERIES_MAX or len(client) >= SERIES_OF_CLIENT_MAX:
                    self.left_out += 1
                    continue
                self._count += 1
            added = point.is_sum and point.is_delta
            values[key] = values.get(key, 0.0) + point.value if added else point.value

    def forget(self, instance_ids: Iterable[bytes]) -> None:
        for instance_id in instance_ids:
            client = self._clients.pop(instance_id, None)
            if client is not None:
                self._count -= len(client)

    def read(self) -> Iterator[tuple[bytes, ClientSeries]]:
        yield from self._clients.items()
