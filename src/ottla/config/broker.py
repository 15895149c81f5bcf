"""The settings of one broker: parsed from text, checked one by one and together, then frozen."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from posixpath import normpath
from typing import Any

from ottla.config.accepted import ACCEPTED, PREFIXES
from ottla.config.broker_table import BrokerSettings
from ottla.config.listeners import (
    Listeners,
    check_advertised,
    check_ports,
    choose_inter_broker,
    read_listeners,
    read_protocols,
)
from ottla.config.security_table import OLD_NAMES, split_listener_key
from ottla.config.settings import ConfigError, ConfigSource, find_similar, suggest_name
from ottla.config.topic import TopicConfig

ALL_DIRECTORIES = "*"
OLD_ADDRESS = {"host.name", "port"}
OLD_ADVERTISED_ADDRESS = {"advertised.host.name", "advertised.port"}
OLD_DEFAULT_PORT = 9092
TYPO_LIKENESS = 0.8
"""The similarity (of difflib) from which on an unknown name counts as a misspelled setting. Names of plug-ins are below
it: confluent.license.topic.replication.factor and offsets.topic.replication.factor have 0.78."""


class BrokerConfig(BrokerSettings):
    """Every setting is an attribute: `config.log_segment_bytes`. `given` has the text of those that were set."""

    sources: tuple[tuple[ConfigSource, Mapping[str, str]], ...]
    """The layers of settings, the strongest first. `given` is all of them merged."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "BrokerConfig":
        given = {OLD_NAMES.get(name, name): text for name, text in given.items()}
        values: dict[str, Any] = {name: setting.default for name, setting in cls.table.items()}
        for name, text in given.items():
            setting = cls.table.get(name)
            if setting is not None:
                values[name] = setting.read(text)
            elif name in ACCEPTED:
                ACCEPTED[name].read(text)
            elif name.startswith(PREFIXES):
                cls._check_setting_of_listener(name, text)
            else:
                raise ConfigError(f"unknown setting {name!r}{suggest_name(name, _NAMES)}")
        _resolve_old_names(values, given)
        config = cls()._fill(values, given)
        config.__dict__["sources"] = ((ConfigSource.STARTED_WITH, config.given),)
        _check_together(config)
        return config

    @classmethod
    def _check_setting_of_listener(cls, name: str, text: str) -> None:
        key = split_listener_key(name)
        if key is not None and key.setting in cls.table:
            try:
                cls.table[key.setting].read(text)
            except ConfigError as error:
                raise ConfigError(f"{name}{str(error).removeprefix(key.setting)}") from None

    def of_listener(self, listener: str, mechanism: str = "") -> "BrokerConfig":
        """The settings that hold for one listener, and for one SASL mechanism of it."""
        values: dict[str, Any] = {}
        given = dict(self.given)
        for level in dict.fromkeys(("", mechanism.lower())):
            for name, text in self.given.items():
                key = split_listener_key(name)
                if key is not None and key[:2] == (listener, level) and key.setting in self.table:
                    values[key.setting] = self.table[key.setting].read(text)
                    given[key.setting] = text
        return self._copy_with(values, given)

    def with_changes(self, changes: Mapping[str, str | None]) -> "BrokerConfig":
        """A copy with some settings changed, or reset to their default (None)."""
        merged = {**self.given, **changes}
        return BrokerConfig.of({name: text for name, text in merged.items() if text is not None})

    def with_run_time_settings(self, all_brokers: Mapping[str, str], this_broker: Mapping[str, str]) -> "BrokerConfig":
        """What the broker was started with, overridden by settings that were made since. Replaces earlier overrides.

        As in Kafka, settings that nobody knows may be made at run time. They are among the sources and have no effect.
        """
        _, started_with = self.sources[-1]
        merged = {**started_with, **all_brokers, **this_broker}
        config = BrokerConfig.of({name: text for name, text in merged.items() if is_known(name)})
        config.__dict__["sources"] = (
            (ConfigSource.ONE_BROKER, this_broker),
            (ConfigSource.ALL_BROKERS, all_brokers),
            (ConfigSource.STARTED_WITH, started_with),
        )
        return config

    @property
    def started_with(self) -> "BrokerConfig":
        """The settings without those that were made since the broker was started."""
        return self.with_run_time_settings({}, {})

    def value(self, name: str) -> Any:
        """The value in force, by Kafka's name, also of a setting without effect."""
        if name in self.table:
            return super().value(name)
        if name.startswith(PREFIXES) and name not in ACCEPTED:
            return self.given.get(name)
        entry = ACCEPTED[name]
        text = self.given.get(name, entry.default)
        return None if text is None else entry.read(text)

    @property
    def is_node_id_given(self) -> bool:
        """Whether the number of this broker is a setting, by its new or its old name, and not the default."""
        return "node.id" in self.given or self.broker_id >= 0

    def is_cordoned(self, directory: str) -> bool:
        """Whether a data directory gets no new replicas."""
        return self.cordoned_log_dirs == (ALL_DIRECTORIES,) or normpath(directory) in self._cordoned_paths

    @cached_property
    def _cordoned_paths(self) -> frozenset[str]:
        return frozenset(map(normpath, self.cordoned_log_dirs))

    @cached_property
    def endpoints(self) -> Listeners:
        """The listener settings as typed values, without KRaft's controller listeners."""
        controllers = {name.upper() for name in self.controller_listener_names}
        protocols = read_protocols(self.listener_security_protocol_map, sorted(controllers))
        everything = read_listeners("listeners", self.listeners, protocols)
        bound = tuple(listener for listener in everything if listener.name not in controllers)
        if not bound:
            raise ConfigError("listeners: there must be at least one that is not a controller listener")
        check_ports(bound)
        advertised = None
        if self.advertised_listeners is not None:
            advertised = read_listeners("advertised.listeners", self.advertised_listeners, protocols)
            advertised = tuple(listener for listener in advertised if listener.name not in controllers)
            check_advertised(advertised, bound)
        inter_broker = choose_inter_broker(
            self.inter_broker_listener_name,
            self.security_inter_broker_protocol,
            "security.inter.broker.protocol" in self.given,
            bound,
        )
        return Listeners(bound, advertised, inter_broker)

    @cached_property
    def topic_defaults(self) -> TopicConfig:
        """The settings of a topic without overrides."""
        return TopicConfig.defaults(self)


def is_known(name: str) -> bool:
    """Whether a broker can be started with the setting, be it with an effect or without."""
    return name in BrokerConfig.table or name in ACCEPTED or name in OLD_NAMES or name.startswith(PREFIXES)


def list_foreign(names: Iterable[str]) -> list[str]:
    """Names that are unlike those of all settings: of plug-ins and distributions, and Kafka ignores them. A name that
    is nearly that of a setting is not among them: it was meant for it."""
    return [name for name in names if not is_known(name) and find_similar(name, _NAMES, TYPO_LIKENESS) is None]


_NAMES = (*BrokerConfig.table, *ACCEPTED)


def _resolve_old_names(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Use the values of old names for new names that are not set."""
    number = values["broker.id"]
    if number >= 0:
        if "node.id" not in given:
            values["node.id"] = number
        elif values["node.id"] != number:
            raise ConfigError(f"broker.id: {number} differs from node.id ({values['node.id']})")
    if values["log.dirs"] is None:
        values["log.dirs"] = values["log.dir"]
    _resolve_old_addresses(values, given)


def _resolve_old_addresses(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """A server.properties of Kafka before 3.0 may have one address in two settings each instead of listeners."""
    host, port = given.get("host.name", ""), given.get("port", str(OLD_DEFAULT_PORT))
    if "listeners" not in given and given.keys() & OLD_ADDRESS:
        values["listeners"] = (_write_listener(host, port),)
    if "advertised.listeners" not in given and given.keys() & OLD_ADVERTISED_ADDRESS:
        host, port = given.get("advertised.host.name", host), given.get("advertised.port", port)
        values["advertised.listeners"] = (_write_listener(host, port),)


def _write_listener(host: str, port: str) -> str:
    host = host.strip()
    return f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port.strip()}"


def _check_together(config: BrokerConfig) -> None:
    """Checks that involve more than one setting."""
    _ = config.endpoints
    if config.topic_defaults.retention_ms == 0:
        raise ConfigError("log.retention.ms: 0 is not a length of time; -1 means no limit")
    if config.topic_defaults.segment_ms < 1:
        raise ConfigError(f"log.roll.ms: {config.log_roll_ms} is below the minimum 1")
    _check_cordoned(config)
    for lower, upper in _ORDERED:
        if config.value(lower) > config.value(upper):
            raise ConfigError(f"{lower}: {config.value(lower)} is above {upper} ({config.value(upper)})")


def _check_cordoned(config: BrokerConfig) -> None:
    """Each name is a data directory, and no two are the same: so their number tells whether any directory is left."""
    names = config.cordoned_log_dirs
    if not names or names == (ALL_DIRECTORIES,):
        return
    if ALL_DIRECTORIES in names:
        raise ConfigError(f"cordoned.log.dirs: {ALL_DIRECTORIES} stands for all directories, and must be the only name")
    known = {normpath(path) for path in config.log_dirs or names}
    for number, name in enumerate(names):
        if normpath(name) not in known:
            raise ConfigError(f"cordoned.log.dirs: {name} is not in log.dirs")
        if normpath(name) in map(normpath, names[:number]):
            raise ConfigError(f"cordoned.log.dirs: {name} is named twice")


_ORDERED = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.assignment.interval.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    ("group.share.min.heartbeat.interval.ms", "group.share.heartbeat.interval.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    ("group.share.min.session.timeout.ms", "group.share.session.timeout.ms"),
    ("group.share.session.timeout.ms", "group.share.max.session.timeout.ms"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
)
"""Pairs of which the first may not be above the second."""
