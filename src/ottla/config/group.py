"""Group settings: all of Kafka 4.3, each with the broker setting that is its default.

Broker settings limit the settings of groups. These limits may change after a group was configured, so they are applied
again whenever a group setting is used.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.config.settings import (
    BOOLEAN,
    INT,
    STRING,
    ConfigError,
    Setting,
    Settings,
    Synonym,
    at_least,
    one_of,
    suggest_name,
)

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_DURATION = re.compile(r"P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.ASCII | re.IGNORECASE)
_BY_DURATION = "by_duration:"
NO_SHARE_GROUPS = "No effect: share groups are not supported."


def _offset_reset(value: str) -> str | None:
    if value in ("latest", "earliest"):
        return None
    if value.startswith(_BY_DURATION) and _DURATION.fullmatch(value.removeprefix(_BY_DURATION)):
        return None
    return f"{value!r} is not one of latest, earliest, by_duration:PnDTnHnMn.nS"


def _of_broker(name: str) -> tuple[Synonym, ...]:
    return (Synonym(f"group.{name}"),)


class GroupConfig(Settings):
    """The settings of one group: its own overrides, and defaults from the broker."""

    consumer_assignment_interval_ms = Setting(
        INT,
        1000,
        at_least(0),
        synonyms=_of_broker("consumer.assignment.interval.ms"),
        doc="Shortest time between two assignments of a consumer group.",
    )
    consumer_heartbeat_interval_ms = Setting(
        INT,
        5000,
        at_least(1),
        synonyms=_of_broker("consumer.heartbeat.interval.ms"),
        doc="Heartbeat interval of a consumer group's members.",
    )
    consumer_session_timeout_ms = Setting(
        INT,
        45_000,
        at_least(1),
        synonyms=_of_broker("consumer.session.timeout.ms"),
        doc="Time without a heartbeat after which a member of a consumer group is removed.",
    )
    share_assignment_interval_ms = Setting(
        INT,
        1000,
        at_least(0),
        synonyms=_of_broker("share.assignment.interval.ms"),
        doc=NO_SHARE_GROUPS,
    )
    share_auto_offset_reset = Setting(
        STRING,
        "latest",
        _offset_reset,
        doc=NO_SHARE_GROUPS,
    )
    share_delivery_count_limit = Setting(
        INT,
        5,
        at_least(2),
        synonyms=_of_broker("share.delivery.count.limit"),
        doc=NO_SHARE_GROUPS,
    )
    share_heartbeat_interval_ms = Setting(
        INT,
        5000,
        at_least(1),
        synonyms=_of_broker("share.heartbeat.interval.ms"),
        doc=NO_SHARE_GROUPS,
    )
    share_isolation_level = Setting(
        STRING,
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        doc=NO_SHARE_GROUPS,
    )
    share_partition_max_record_locks = Setting(
        INT,
        2000,
        at_least(100),
        synonyms=_of_broker("share.partition.max.record.locks"),
        doc=NO_SHARE_GROUPS,
    )
    share_record_lock_duration_ms = Setting(
        INT,
        30_000,
        at_least(1000),
        synonyms=_of_broker("share.record.lock.duration.ms"),
        doc=NO_SHARE_GROUPS,
    )
    share_renew_acknowledge_enable = Setting(
        BOOLEAN,
        True,
        doc=NO_SHARE_GROUPS,
    )
    share_session_timeout_ms = Setting(
        INT,
        45_000,
        at_least(1),
        synonyms=_of_broker("share.session.timeout.ms"),
        doc=NO_SHARE_GROUPS,
    )
    streams_assignment_interval_ms = Setting(
        INT,
        1000,
        at_least(0),
        synonyms=_of_broker("streams.assignment.interval.ms"),
        doc="No effect: Kafka Streams groups of the streams protocol are not supported.",
    )
    streams_heartbeat_interval_ms = Setting(
        INT,
        5000,
        at_least(1),
        synonyms=_of_broker("streams.heartbeat.interval.ms"),
        doc="No effect: Kafka Streams groups of the streams protocol are not supported.",
    )
    streams_initial_rebalance_delay_ms = Setting(
        INT,
        3000,
        at_least(0),
        synonyms=_of_broker("streams.initial.rebalance.delay.ms"),
        doc="No effect: Kafka Streams groups of the streams protocol are not supported.",
    )
    streams_num_standby_replicas = Setting(
        INT,
        0,
        at_least(0),
        synonyms=_of_broker("streams.num.standby.replicas"),
        doc="No effect: Kafka Streams groups of the streams protocol are not supported.",
    )
    streams_session_timeout_ms = Setting(
        INT,
        45_000,
        at_least(1),
        synonyms=_of_broker("streams.session.timeout.ms"),
        doc="No effect: Kafka Streams groups of the streams protocol are not supported.",
    )

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: "BrokerConfig") -> "GroupConfig":
        """The values in force. Each override is checked by itself; `check_together` has the checks for a change."""
        values: dict[str, Any] = {
            name: broker.value(setting.synonyms[0].name) if setting.synonyms else setting.default
            for name, setting in cls.table.items()
        }
        for name, text in overrides.items():
            known = cls.table.get(name)
            if known is None:
                raise ConfigError(f"unknown group setting {name!r}{suggest_name(name, cls.table)}")
            values[name] = known.read(text)
        return cls()._fill(values, overrides)

    @classmethod
    def in_force(cls, name: str, overrides: Mapping[str, str], broker: "BrokerConfig") -> int:
        """The value in force of one numeric setting: the group's own value, within the present limits of the broker."""
        setting = cls.table[name]
        if name not in overrides:
            return int(broker.value(setting.synonyms[0].name))
        return int(min(max(setting.read(overrides[name]), broker.value(_LOWEST[name])), broker.value(_HIGHEST[name])))

    def check_together(self, broker: "BrokerConfig") -> None:
        """ConfigError if a setting exceeds the limits of the broker, or a session is no longer than a heartbeat."""
        for name in sorted(self.given):
            lowest, highest = _LOWEST.get(name), _HIGHEST.get(name)
            if lowest is not None and self.value(name) < broker.value(lowest):
                raise ConfigError(f"{name}: {self.value(name)} is below {lowest} ({broker.value(lowest)})")
            if highest is not None and self.value(name) > broker.value(highest):
                raise ConfigError(f"{name}: {self.value(name)} is above {highest} ({broker.value(highest)})")
        for kind in ("consumer", "share", "streams"):
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if session in self.given or heartbeat in self.given:
                session_ms, heartbeat_ms = self.value(session), self.value(heartbeat)
                if session_ms <= heartbeat_ms:
                    raise ConfigError(f"{session}: {session_ms} is not above {heartbeat} ({heartbeat_ms})")


def _find_limits(which: str) -> dict[str, str]:
    """Group setting -> the broker setting that limits it."""
    names = (
        "consumer.assignment.interval.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
        "share.assignment.interval.ms",
        "share.delivery.count.limit",
        "share.heartbeat.interval.ms",
        "share.partition.max.record.locks",
        "share.record.lock.duration.ms",
        "share.session.timeout.ms",
        "streams.assignment.interval.ms",
        "streams.heartbeat.interval.ms",
        "streams.session.timeout.ms",
    )
    return {name: "group.{0}.{2}.{1}".format(*name.split(".", 1), which) for name in names}


_LOWEST = _find_limits("min")
_HIGHEST = {**_find_limits("max"), "streams.num.standby.replicas": "group.streams.max.standby.replicas"}
