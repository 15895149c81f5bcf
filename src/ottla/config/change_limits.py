"""Limits of changes while a broker runs. As in Kafka, they depend on the values that are in force."""

from ottla.config.broker import BrokerConfig
from ottla.config.settings import ConfigError

THREAD_COUNTS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Settings that one change can halve or double at most. Nearly all have no effect in Ottla, but a script that changes
them gets the answer of Kafka."""

DEDUPE_BYTES_PER_THREAD = 1 << 20
AS_RETENTION, UNLIMITED = -2, -1
"""Values of log.local.retention.ms and log.local.retention.bytes."""


def check_change(before: BrokerConfig, after: BrokerConfig) -> None:
    """ConfigError if a running broker cannot go from the settings `before` to those `after`."""

    def changes(*names: str) -> bool:
        return any(before.value(name) != after.value(name) for name in names)

    for name in filter(changes, THREAD_COUNTS):
        old, new = before.value(name), after.value(name)
        least = max(old // 2, 1)
        if not least <= new <= 2 * old:
            raise ConfigError(f"{name}: {new} is not between {least} and {2 * old}, half and double of what it is")
    dedupe, cleaners = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    if changes(dedupe, cleaners) and after.value(dedupe) // after.value(cleaners) <= DEDUPE_BYTES_PER_THREAD:
        size, count = after.value(dedupe), after.value(cleaners)
        raise ConfigError(f"{dedupe}: {size} is not more than 1 MiB for each of {count} {cleaners}")
    for unit, limit in (("ms", after.topic_defaults.retention_ms), ("bytes", after.log_retention_bytes)):
        local, whole = f"log.local.retention.{unit}", f"log.retention.{unit}"
        value = after.value(local)
        if not changes(local, whole) or limit < 0 or value == AS_RETENTION:
            continue
        if value == UNLIMITED or value > limit:
            raise ConfigError(f"{local}: {value} is more than {whole} ({limit})")
