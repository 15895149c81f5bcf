"""Client settings by Kafka's names: those of the Java client, and librdkafka's where only the name differs.

Settings that have no meaning for this client are ignored, as in every Kafka client. Those that ask for what it cannot
do raise ValueError with their names. `security.py` has those of TLS and SASL.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.connection import CLIENT_ID
from ottla.client.security import Security

_BOOTSTRAP = ("bootstrap.servers", "metadata.broker.list")
_PORT_MAX = 65535


class ClientSettings(NamedTuple):
    bootstrap: tuple[tuple[str, int], ...]
    security: Security
    client_id: str
    request_timeout_s: float
    """The time-out of one request."""
    connect_timeout_s: float
    """The time-out of connecting, with TLS and login; that of a request if it is not set."""
    api_timeout_s: float
    """The time-out of one operation with all its retries."""
    pause_s: float
    pause_max_s: float
    check_crcs: bool

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "ClientSettings":
        """Raises ValueError, with one line that names the setting, if one is not valid."""
        request_ms = _parse_milliseconds(settings, ("request.timeout.ms", "socket.timeout.ms"), 30_000)
        pause_ms = _parse_milliseconds(settings, ("retry.backoff.ms",), 100)
        return cls(
            _parse_bootstrap(settings),
            Security.of(settings),
            settings.get("client.id", CLIENT_ID),
            request_ms / 1000,
            _parse_milliseconds(settings, ("socket.connection.setup.timeout.ms",), request_ms) / 1000,
            _parse_milliseconds(settings, ("default.api.timeout.ms",), 60_000) / 1000,
            pause_ms / 1000,
            max(_parse_milliseconds(settings, ("retry.backoff.max.ms",), 1000), pause_ms) / 1000,
            _parse_boolean(settings, "check.crcs", True),
        )


def _parse_bootstrap(settings: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    text = next((settings[name] for name in _BOOTSTRAP if settings.get(name)), "")
    addresses = tuple(_parse_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise ValueError("bootstrap.servers: no broker is named; give host:port, or several separated by commas")
    return addresses


def _parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError(f"bootstrap.servers: {text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _parse_milliseconds(settings: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        if name in settings:
            text = str(settings[name]).strip()
            if not text.isdecimal() or int(text) >= 1 << 31:
                raise ValueError(f"{name}: {text!r} is not a number of milliseconds")
            return int(text)
    return default


def _parse_boolean(settings: Mapping[str, str], name: str, default: bool) -> bool:
    text = str(settings.get(name, default)).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"{name}: {text!r} is neither true nor false")
    return text == "true"
