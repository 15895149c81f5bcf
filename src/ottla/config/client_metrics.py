"""Settings of a subscription to clients' metrics (KIP-714): which metrics, how often, of which clients.

Subscriptions are kept, checked, listed and described. No client is asked for its metrics yet.
"""

import re
from collections.abc import Mapping
from typing import Any

from ottla.config.settings import INT, LIST, ConfigError, Setting, Settings, between, nearest

MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def client_patterns(values: tuple[str, ...]) -> str | None:
    """A check: each is `<what>=<regular expression>`."""
    for value in values:
        what, equals, pattern = (part.strip() for part in value.partition("="))
        if not equals or what not in MATCHED:
            return f"{value!r} is not <{'|'.join(MATCHED)}>=<regular expression>"
        try:
            re.compile(pattern)
        except re.error as error:
            return f"{pattern!r} is not a regular expression: {error}"
    return None


class ClientMetricsConfig(Settings):
    """One subscription."""

    metrics = Setting(LIST, (), doc="Prefixes of the names of metrics; * means all, nothing means none.")
    interval_ms = Setting(INT, 300_000, doc="How often a client sends them: from 100 ms to an hour.")
    match = Setting(LIST, (), client_patterns, doc="Clients that are meant: client_id=orders-.*, ...; nothing: all.")

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ClientMetricsConfig":
        """Effective values; each is checked by itself, `check_limits` is for whoever sets them."""
        values: dict[str, Any] = {name: setting.default for name, setting in cls.table.items()}
        values |= {name: cls.table[name].read(text) for name, text in given.items() if name in cls.table}
        return cls()._fill(values, given)

    def check_limits(self) -> None:
        """What Kafka calls a bad request rather than a bad setting."""
        for name in self.given:
            if name not in self.table:
                raise ConfigError(f"unknown setting of client metrics {name!r}{nearest(name, self.table)}")
        if (problem := between(100, 3_600_000)(self.interval_ms)) is not None:
            raise ConfigError(f"interval.ms: {problem}")
