"""Settings of a subscription to client metrics (KIP-714): which metrics, how often, of which clients.

Patterns are in RE2's syntax, which is Java's without what may take exponential time: clients choose the texts that they
are matched with. The engine is imported with the first pattern.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from ottla.config.settings import INT, LIST, ConfigError, Setting, Settings, between, suggest_name

MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


PATTERN_MEMORY_MAX: Final = 1 << 20
"""Bytes that one compiled pattern may take."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """The compiled pattern. ValueError says why RE2 refuses it."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def check_client_patterns(values: tuple[str, ...]) -> str | None:
    """Check that each value is `<what>=<regular expression>`."""
    for value in values:
        what, equals, pattern = (part.strip() for part in value.partition("="))
        if not equals or what not in MATCHED:
            return f"{value!r} is not <{'|'.join(MATCHED)}>=<regular expression>"
        try:
            compile_pattern(pattern)
        except ValueError as error:
            return f"{pattern!r} is not a regular expression: {error}"
    return None


class ClientMetricsConfig(Settings):
    """One subscription."""

    metrics = Setting(LIST, (), doc="Prefixes of metric names. * means all metrics, an empty list none.")
    interval_ms = Setting(INT, 300_000, doc="How often a client sends its metrics, from 100 ms to one hour.")
    match = Setting(
        LIST, (), check_client_patterns, doc="Which clients send metrics: client_id=orders-.*,... Empty means all."
    )

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ClientMetricsConfig":
        """The values in force. Each is checked by itself; `check_limits` has the checks for a change."""
        values: dict[str, Any] = {name: setting.default for name, setting in cls.table.items()}
        values |= {name: cls.table[name].read(text) for name, text in given.items() if name in cls.table}
        return cls()._fill(values, given)

    def check_limits(self) -> None:
        """Checks to which Kafka answers INVALID_REQUEST rather than INVALID_CONFIG."""
        for name in self.given:
            if name not in self.table:
                raise ConfigError(f"unknown setting of client metrics {name!r}{suggest_name(name, self.table)}")
        if (problem := between(100, 3_600_000)(self.interval_ms)) is not None:
            raise ConfigError(f"interval.ms: {problem}")
