"""The properties of a worker, by Kafka Connect's names.

Settings with the prefixes producer., consumer. and admin. are for the clients of connectors, those of key.converter.,
value.converter. and header.converter. for the converters, config.storage., offset.storage. and status.storage. for the
topics that the worker creates. Settings of clients, such as security.protocol, are for all clients.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.defaults import BOOTSTRAP, DEFAULT_BOOTSTRAP, is_connection_setting
from ottla.client.settings import ClientSettings
from ottla.connect.errors import BadConfig
from ottla.connect.worker.membership import GroupSettings
from ottla.connect.worker.topics import TopicForm

STANDALONE_GROUP: Final = "connect-standalone"
"""Stands for group.id in the transactional ids of a standalone worker that has none."""

OFFSETS_TOPIC: Final = "connect-offsets"
"""Where a standalone worker keeps offsets if offset.storage.topic is not set."""

_USED: Final = frozenset(
    {
        "bootstrap.servers",
        "group.id",
        "config.storage.topic",
        "offset.storage.topic",
        "status.storage.topic",
        "config.storage.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
        "offset.storage.partitions",
        "status.storage.partitions",
        "session.timeout.ms",
        "rebalance.timeout.ms",
        "heartbeat.interval.ms",
        "task.shutdown.graceful.timeout.ms",
        "scheduled.rebalance.max.delay.ms",
        "topic.tracking.enable",
        "topic.tracking.allow.reset",
        "topic.creation.enable",
        "key.converter",
        "value.converter",
        "header.converter",
        "listeners",
        "rest.advertised.host.name",
        "rest.advertised.port",
        "rest.advertised.listener",
        "plugin.path",
        "config.providers",
        "connector.client.config.override.policy",
        "offset.flush.interval.ms",
        "offset.flush.timeout.ms",
        "access.control.allow.origin",
        "access.control.allow.methods",
        "admin.listeners",
        "response.http.headers.config",
        "rest.extension.classes",
        "java.security.auth.login.config",
        "client.id",
    }
)
_WITHOUT_EFFECT: Final = {
    "offset.storage.file.filename": "offsets are kept in the topic {offsets}, so that they are committed with the rows",
    "exactly.once.source.support": "sources are always exactly-once",
    "connect.protocol": "workers have a protocol of their own",
    "plugin.discovery": "connectors are Python classes",
    "worker.sync.timeout.ms": "workers need not catch up before a rebalance",
    "worker.unsync.backoff.ms": "workers need not catch up before a rebalance",
    "internal.key.converter": "the worker's topics always have JSON",
    "internal.value.converter": "the worker's topics always have JSON",
    "inter.worker.key.generation.algorithm": "workers send each other no requests",
    "inter.worker.key.size": "workers send each other no requests",
    "inter.worker.key.ttl.ms": "workers send each other no requests",
    "inter.worker.signature.algorithm": "workers send each other no requests",
    "inter.worker.verification.algorithms": "workers send each other no requests",
    "metric.reporters": "reporters are Java classes; GET /metrics has the metrics for Prometheus",
}
_PREFIXES: Final = (
    "producer.",
    "consumer.",
    "admin.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "config.storage.",
    "offset.storage.",
    "status.storage.",
    "config.providers.",
    "listeners.https.",
    "spark.",
)
_NOT_FOR_TOPICS: Final = frozenset({"topic", "partitions", "replication.factor", "file.filename"})


@dataclass(frozen=True)
class WorkerProperties:
    raw: Mapping[str, str]
    group: str
    """group.id, or what stands for it in standalone mode."""
    client: Mapping[str, str]
    """Settings of the worker's own clients."""
    offsets: TopicForm
    stop_timeout_s: float
    tracks_topics: bool
    may_reset_topics: bool

    @classmethod
    def of(cls, raw: Mapping[str, str], *, is_distributed: bool) -> "WorkerProperties":
        """BadConfig, with one line that names the setting, if one is missing or not valid."""
        given = {key: value.strip() for key, value in raw.items()}
        client = {key: value for key, value in given.items() if is_connection_setting(key)}
        client.setdefault(BOOTSTRAP, DEFAULT_BOOTSTRAP)
        try:
            ClientSettings.of(client)
        except ValueError as error:
            raise BadConfig(str(error)) from None
        if is_distributed:
            for name in ("group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic"):
                if not given.get(name):
                    raise BadConfig(f"{name} is missing: a distributed worker needs it")
        return cls(
            raw=given,
            group=given.get("group.id") or STANDALONE_GROUP,
            client=client,
            offsets=_read_topic(given, "offset.storage", OFFSETS_TOPIC, 25),
            stop_timeout_s=_read_number(given, "task.shutdown.graceful.timeout.ms", 5_000) / 1000,
            tracks_topics=_read_truth(given, "topic.tracking.enable", True),
            may_reset_topics=_read_truth(given, "topic.tracking.allow.reset", True),
        )

    @property
    def configs(self) -> TopicForm:
        """All changes have one order, so the topic has one partition."""
        return _read_topic(self.raw, "config.storage", "connect-configs", 1)

    @property
    def statuses(self) -> TopicForm:
        return _read_topic(self.raw, "status.storage", "connect-status", 5)

    @property
    def membership(self) -> GroupSettings:
        session_ms = _read_number(self.raw, "session.timeout.ms", 10_000)
        heartbeat_ms = _read_number(self.raw, "heartbeat.interval.ms", 3_000)
        if heartbeat_ms >= session_ms:
            raise BadConfig(f"heartbeat.interval.ms={heartbeat_ms} has to be less than session.timeout.ms={session_ms}")
        return GroupSettings(
            self.group,
            session_ms,
            _read_number(self.raw, "rebalance.timeout.ms", 60_000),
            heartbeat_ms / 1000,
        )

    @property
    def takeover_delay_s(self) -> float:
        """Kafka Connect waits for five minutes, because its rebalances restart tasks. Here a connector that stays is
        not touched, so what is lost is taken over at once unless the user asks for a delay."""
        return _read_number(self.raw, "scheduled.rebalance.max.delay.ms", 0) / 1000

    def list_warnings(self) -> list[str]:
        """One line for each setting that has no effect, and one for those that are not known."""
        found = []
        unknown = []
        for name in sorted(self.raw):
            if name in _WITHOUT_EFFECT:
                reason = _WITHOUT_EFFECT[name].format(offsets=self.offsets.name)
                found.append(f"{name} has no effect: {reason}")
            elif name not in _USED and name not in self.client and not name.startswith(_PREFIXES):
                unknown.append(name)
        if unknown:
            found.append(f"unknown settings of the worker are ignored: {', '.join(unknown)}")
        return found


def _read_topic(given: Mapping[str, str], prefix: str, name: str, partitions: int) -> TopicForm:
    """Any further setting with the prefix is one of the topic."""
    settings = {
        key.removeprefix(f"{prefix}."): value
        for key, value in given.items()
        if key.startswith(f"{prefix}.") and key.removeprefix(f"{prefix}.") not in _NOT_FOR_TOPICS
    }
    count = 1 if partitions == 1 else _read_number(given, f"{prefix}.partitions", partitions)
    replicas = _read_number(given, f"{prefix}.replication.factor", -1)
    return TopicForm(given.get(f"{prefix}.topic") or name, count, replicas, settings)


def _read_number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not re.fullmatch(r"-?\d{1,18}", text) or (int(text) < 0 and int(text) != default):
        raise BadConfig(f"{name}: {text!r} is not a whole number")
    return int(text)


def _read_truth(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise BadConfig(f"{name}: {text!r} is neither true nor false")
    return text == "true"
