"""Which metrics are asked of which client: all subscriptions that match it, together.

Patterns match the whole text, in RE2's syntax, so that no text of a client can take more than linear time.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cluster.changes import ConfigResource
from ottla.cluster.image import Image
from ottla.config.client_metrics import ClientMetricsConfig, compile_pattern
from ottla.records.checksum import crc32c

ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000


class Subscription(NamedTuple):
    """What one client is asked for. Without metrics, it is asked for nothing and comes back after the interval."""

    id: int
    metrics: tuple[str, ...]
    interval_ms: int

    def wants(self, name: str) -> bool:
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


class Subscriptions:
    """All subscriptions of the metadata. A change of them makes another object."""

    def __init__(self, configs: Sequence[ClientMetricsConfig]) -> None:
        self._rows = [(config, _compile(config.match)) for config in configs]

    @classmethod
    def of(cls, image: Image) -> "Subscriptions":
        names = sorted(name for resource, name in image.configs if resource is ConfigResource.CLIENT_METRICS)
        return cls([ClientMetricsConfig.of(image.config(ConfigResource.CLIENT_METRICS, name)) for name in names])

    def find(self, instance_id: bytes, traits: Mapping[str, str]) -> Subscription:
        """What the client with these traits (`ottla.config.client_metrics.MATCHED`) is asked for."""
        metrics: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for config, patterns in self._rows:
            if all(pattern.fullmatch(traits.get(trait, "")) for trait, pattern in patterns):
                metrics.update(config.metrics)
                interval_ms = min(interval_ms, config.interval_ms)
        chosen = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        return Subscription(_compute_id(chosen, interval_ms, instance_id), chosen, interval_ms)


def _compile(match: Iterable[str]) -> list[tuple[str, Any]]:
    rows = (row.partition("=") for row in match)
    return [(trait.strip(), compile_pattern(pattern.strip())) for trait, _, pattern in rows]


def _compute_id(metrics: tuple[str, ...], interval_ms: int, instance_id: bytes) -> int:
    """A number that changes with what is asked for, as a signed 32 bit integer."""
    number = crc32c(f"{metrics}{interval_ms}".encode() + instance_id)
    return number - (1 << 32) if number >= 1 << 31 else number
