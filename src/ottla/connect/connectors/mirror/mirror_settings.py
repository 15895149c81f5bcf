"""The settings of the three connectors, by MirrorMaker 2's names and with its defaults.

Settings of clients have the prefixes `source.cluster.` and `target.cluster.`, or `source.consumer.` and the like, and
are not declared. One default differs: the map of offsets is in the target, where it is written in the same transaction
as the records.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.connect.connectors.mirror.policy import DEFAULT_POLICY, IDENTITY_POLICY
from ottla.connect.settings.checks import are_regexes, at_least, non_empty, one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

_LOW, _HIGH = Importance.LOW, Importance.HIGH
_POLICIES: Final = tuple(name for full in (DEFAULT_POLICY, IDENTITY_POLICY) for name in (full, full.rpartition(".")[2]))
CLASS_PREFIX: Final = "org.apache.kafka.connect.mirror."
PREFIXES: Final = ("source.", "target.", "consumer.", "producer.", "admin.")
"""Of settings of clients."""


def _define(name: str, kind: Kind, default: Any, doc: str, check: Callable[[str, Any], None] | None = None) -> Setting:
    return Setting(name, kind, default, doc, _LOW, check)


def _switch(name: str, default: bool, doc: str) -> Setting:
    return _define(name, Kind.BOOLEAN, default, doc)


def _interval(name: str, default: int, doc: str) -> Setting:
    return _define(f"{name}.interval.seconds", Kind.LONG, default, doc, at_least(0))


def _replicas(name: str, default: int, doc: str) -> Setting:
    return _define(name, Kind.INT, default, doc)


def _only(name: str, value: str, doc: str) -> Setting:
    return _define(name, Kind.STRING, value, doc, one_of(value, value.rpartition(".")[2]))


_BASE: Final = (
    Setting("source.cluster.alias", Kind.STRING, REQUIRED, "The short name of the source.", _HIGH, non_empty),
    Setting("target.cluster.alias", Kind.STRING, "target", "The short name of the target.", _HIGH, non_empty),
    Setting("source.cluster.bootstrap.servers", Kind.STRING, None, "Brokers of the source.", _HIGH),
    Setting("target.cluster.bootstrap.servers", Kind.STRING, None, "Brokers of the target; the worker's.", _HIGH),
    _switch("enabled", True, "Whether the connector does anything."),
    _define(
        "replication.policy.class",
        Kind.STRING,
        DEFAULT_POLICY,
        "How mirrored topics are named: with the source's alias in front, or the same (identity).",
        one_of(*_POLICIES),
    ),
    _define("replication.policy.separator", Kind.STRING, ".", "Between alias and name.", non_empty),
    _switch("replication.policy.internal.topic.separator.enabled", True, "Whether internal topics have it too."),
    _define("admin.timeout.ms", Kind.LONG, 60000, "Accepted for MirrorMaker 2's sake; requests are tried for ever."),
)
_TOPICS: Final = (
    _define("topics", Kind.LIST, (".*",), "Names and patterns of topics to mirror.", are_regexes),
    _define(
        "topics.exclude",
        Kind.LIST,
        (r"mm2.*\.internal", r".*\.replica", r"__.*"),
        "Names and patterns of topics that are not mirrored.",
        are_regexes,
    ),
    _only("topic.filter.class", f"{CLASS_PREFIX}DefaultTopicFilter", "Only this filter is there."),
)
_SYNCS: Final = (
    _switch("emit.offset-syncs.enabled", True, "Whether the map of offsets is written."),
    _define(
        "offset-syncs.topic.location",
        Kind.STRING,
        "target",
        "Where the map of offsets is. It is written in the transaction of the records, so it is in the target.",
        one_of("target"),
    ),
    _replicas(
        "offset-syncs.topic.replication.factor", 3, "Replicas of the topic of the map; -1: the broker's default."
    ),
)


def _need_source(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    name = "source.cluster.bootstrap.servers"
    return {} if config.get(name) else {name: [f'Missing required configuration "{name}" which has no default value.']}


_OF_SOURCE: Final = Settings(
    (
        *_BASE,
        *_TOPICS,
        *_SYNCS,
        _define(
            "config.properties.exclude",
            Kind.LIST,
            (
                r"follower\.replication\.throttled\.replicas",
                r"leader\.replication\.throttled\.replicas",
                r"message\.timestamp\.difference\.max\.ms",
                r"message\.timestamp\.type",
                r"unclean\.leader\.election\.enable",
                r"min\.insync\.replicas",
            ),
            "Names and patterns of topic settings that are not mirrored.",
            are_regexes,
        ),
        _define(
            "use.defaults.from",
            Kind.STRING,
            "target",
            "Whose default a setting has that the source's topic does not set.",
            one_of("source", "target"),
        ),
        _only("config.property.filter.class", f"{CLASS_PREFIX}DefaultConfigPropertyFilter", "Only this filter."),
        _replicas("replication.factor", 2, "Replicas of mirrored topics; -1: the broker's default."),
        _switch("refresh.topics.enabled", True, "Whether new topics and partitions are looked for."),
        _interval("refresh.topics", 600, "How often new topics and partitions are looked for."),
        _switch("sync.topic.configs.enabled", True, "Whether settings of topics are mirrored."),
        _interval("sync.topic.configs", 600, "How often settings of topics are mirrored."),
        _switch("sync.topic.acls.enabled", True, "Whether ACLs of topics are mirrored, without the right to write."),
        _interval("sync.topic.acls", 600, "How often ACLs are mirrored."),
        _define(
            "offset.lag.max",
            Kind.LONG,
            100,
            "How many records a translated offset may be too low where the source has gaps; 0: none.",
            at_least(0),
        ),
        _switch("heartbeats.replication.enabled", True, "Whether heartbeats are mirrored whatever `topics` says."),
        _define("consumer.poll.timeout.ms", Kind.LONG, 1000, "Accepted for MirrorMaker 2's sake."),
    ),
    _need_source,
)

_OF_CHECKPOINT: Final = Settings(
    (
        *_BASE,
        *_TOPICS,
        *_SYNCS,
        _define("groups", Kind.LIST, (".*",), "Names and patterns of groups.", are_regexes),
        _define(
            "groups.exclude",
            Kind.LIST,
            ("console-consumer-.*", "connect-.*", "__.*"),
            "Names and patterns of groups that are left out.",
            are_regexes,
        ),
        _only("group.filter.class", f"{CLASS_PREFIX}DefaultGroupFilter", "Only this filter is there."),
        _switch("refresh.groups.enabled", True, "Whether new groups are looked for."),
        _interval("refresh.groups", 600, "How often new groups are looked for."),
        _switch("emit.checkpoints.enabled", True, "Whether translated offsets are written to the checkpoints topic."),
        _interval("emit.checkpoints", 60, "How often offsets of groups are translated."),
        _switch("sync.group.offsets.enabled", False, "Whether translated offsets are committed in the target."),
        _interval("sync.group.offsets", 60, "How often they are committed; with the next checkpoints at the earliest."),
        _replicas("checkpoints.topic.replication.factor", 3, "Replicas of the checkpoints topic."),
        _define("consumer.poll.timeout.ms", Kind.LONG, 1000, "Accepted for MirrorMaker 2's sake."),
    ),
    _need_source,
)

_OF_HEARTBEAT: Final = Settings(
    (
        *_BASE,
        _switch("emit.heartbeats.enabled", True, "Whether heartbeats are written."),
        _interval("emit.heartbeats", 1, "How often."),
        _replicas("heartbeats.topic.replication.factor", 3, "Replicas of the heartbeats topic."),
    )
)

_ALL: Final = frozenset(
    each.name for settings in (_OF_SOURCE, _OF_CHECKPOINT, _OF_HEARTBEAT) for each in settings.settings
)
SOURCE_SETTINGS: Final = replace(_OF_SOURCE, accepted=_ALL)
CHECKPOINT_SETTINGS: Final = replace(_OF_CHECKPOINT, accepted=_ALL)
HEARTBEAT_SETTINGS: Final = replace(_OF_HEARTBEAT, accepted=_ALL)
"""A file of MirrorMaker 2 gives the settings of all three to each of them."""
