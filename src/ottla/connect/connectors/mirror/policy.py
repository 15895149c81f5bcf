"""Names of mirrored and internal topics, as MirrorMaker 2's replication policies choose them, and what is mirrored."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

HEARTBEATS: Final = "heartbeats"
DEFAULT_POLICY: Final = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@dataclass(frozen=True)
class ReplicationPolicy:
    """`keeps_names`: MirrorMaker 2's IdentityReplicationPolicy, which cannot see cycles."""

    source: str
    target: str
    separator: str = "."
    internal_separator: str = "."
    keeps_names: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ReplicationPolicy":
        separator = config["replication.policy.separator"]
        is_enabled = config["replication.policy.internal.topic.separator.enabled"]
        return cls(
            config["source.cluster.alias"],
            config["target.cluster.alias"],
            separator,
            separator if is_enabled else ".",
            config["replication.policy.class"].rpartition(".")[2] == IDENTITY_POLICY.rpartition(".")[2],
        )

    def name_in_target(self, topic: str) -> str:
        if self.keeps_names and not topic.endswith(HEARTBEATS):
            return topic
        return f"{self.source}{self.separator}{topic}"

    def find_origin(self, topic: str) -> tuple[str, str] | None:
        """The cluster that a mirrored topic comes from, and its name there; None if the name does not say it."""
        alias, separator, name = topic.partition(self.separator)
        if not separator or not name or (self.keeps_names and not topic.endswith(HEARTBEATS)):
            return None
        return alias, name

    def is_cycle(self, topic: str) -> bool:
        """Whether the target has the topic already, because it comes from there, on whatever way."""
        while (origin := self.find_origin(topic)) is not None:
            alias, topic = origin
            if alias == self.target:
                return True
        return False

    def is_heartbeats(self, topic: str) -> bool:
        while (origin := self.find_origin(topic)) is not None:
            topic = origin[1]
        return topic == HEARTBEATS

    def is_internal(self, topic: str) -> bool:
        between = self.internal_separator
        is_of_mirrors = topic.startswith("mm2") and topic.endswith(f"{between}internal")
        return (
            is_of_mirrors or topic.startswith(("__", ".")) or topic.endswith(f"{between}checkpoints{between}internal")
        )

    def offset_syncs_topic(self, alias: str) -> str:
        """The map of what is mirrored from the cluster of this alias."""
        between = self.internal_separator
        return f"mm2-offset-syncs{between}{alias}{between}internal"

    @property
    def checkpoints_topic(self) -> str:
        between = self.internal_separator
        return f"{self.source}{between}checkpoints{between}internal"


@dataclass(frozen=True)
class NameFilter:
    """Names that one of the patterns matches as a whole, except those that another one matches."""

    include: re.Pattern[str]
    exclude: re.Pattern[str]

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> "NameFilter":
        return cls(_join(include), _join(exclude))

    def has(self, name: str) -> bool:
        return self.include.fullmatch(name) is not None and self.exclude.fullmatch(name) is None


def _join(patterns: Sequence[str]) -> re.Pattern[str]:
    """No pattern matches nothing."""
    return re.compile("|".join(f"(?:{each})" for each in patterns) or r"(?!)")


@dataclass(frozen=True)
class TopicChoice:
    """Which topics are mirrored."""

    policy: ReplicationPolicy
    names: NameFilter
    has_heartbeats: bool = True

    @classmethod
    def of(cls, config: Mapping[str, Any], policy: ReplicationPolicy) -> "TopicChoice":
        names = NameFilter.of(config["topics"], config["topics.exclude"])
        return cls(policy, names, config.get("heartbeats.replication.enabled", True))

    def has(self, topic: str) -> bool:
        if self.policy.is_internal(topic) or self.policy.is_cycle(topic):
            return False
        return self.names.has(topic) or (self.has_heartbeats and self.policy.is_heartbeats(topic))
