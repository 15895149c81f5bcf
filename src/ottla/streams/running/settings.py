"""What an app's options mean for clients and tasks."""

from collections.abc import Mapping
from typing import Final

from ottla.client.transactions import TIMEOUT_MS
from ottla.streams.errors import StreamsError
from ottla.streams.options import AppOptions

TASK_TIMEOUT_MS: Final = 300_000
"""task.timeout.ms of Kafka Streams: how long a task may fail in a row before the app ends."""

DRIVER_PATIENCE_MS: Final = 5_000
"""How long one request of the driver is tried. Then the driver looks whether it shall stop, and tries again."""


def client_settings(options: AppOptions) -> dict[str, str]:
    """The settings of the clients in tasks."""
    given = {name: str(value) for name, value in options.settings.items()}
    return {"client.id": f"ottla-streams-{options.name}", **given, "bootstrap.servers": options.bootstrap}


def driver_client_settings(options: AppOptions) -> dict[str, str]:
    return {"default.api.timeout.ms": str(DRIVER_PATIENCE_MS), **client_settings(options)}


def transaction_timeout_ms(options: AppOptions) -> int:
    return _milliseconds(options.settings, "transaction.timeout.ms", TIMEOUT_MS)


def task_timeout_s(options: AppOptions) -> float:
    return _milliseconds(options.settings, "task.timeout.ms", TASK_TIMEOUT_MS) / 1000


def _milliseconds(settings: Mapping[str, str], name: str, default: int) -> int:
    text = str(settings.get(name, default))
    if not text.isdecimal():
        raise StreamsError(f"App: {name}={text!r}: it must be a number of milliseconds")
    return int(text)
