"""The metadata of the cluster at one version: immutable, and the only truth that a broker acts on.

`image.replay(version, changes)` returns the next image and leaves this one unchanged. Both share what did not change,
so a new topic among 100,000 costs microseconds. replay.py has the effect of each change.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from immutables import Map

from ottla.cluster.changes import Change, ConfigResource, QuotaName
from ottla.cluster.entities import BrokerImage, ControllerImage, PartitionImage, TopicImage
from ottla.cluster.identities import NO_IDENTITIES, Identities
from ottla.cluster.leadership import ELIGIBLE_LEADER_REPLICAS, TopicRules, read_common_rules, read_topic_rules
from ottla.cluster.replay import IMAGE_FIELDS, MutableImage, ReplayError, normalize, replay
from ottla.cluster.snapshots import compute_digest, write_snapshot
from ottla.security.acls import NO_ACLS, AclSet

__all__ = [
    "EMPTY",
    "BrokerImage",
    "ControllerImage",
    "Image",
    "PartitionImage",
    "ReplayError",
    "TopicImage",
    "normalize",
]

_NO_CONFIG: Mapping[str, str] = Map()
_ALIVE = "alive brokers"


@dataclass(frozen=True, slots=True)
class Image:
    """All metadata at one version. Version 0 is the empty cluster, before the first entry."""

    version: int = 0
    cluster_id: str | None = None
    controller: ControllerImage | None = None
    next_producer_id: int = 0
    brokers: Map[int, BrokerImage] = field(default_factory=Map)
    topics_by_name: Map[str, TopicImage] = field(default_factory=Map)
    topic_names: Map[bytes, str] = field(default_factory=Map)
    normalized_names: Map[str, str] = field(default_factory=Map)
    configs: Map[tuple[ConfigResource, str], Map[str, str]] = field(default_factory=Map)
    features: Map[str, int] = field(default_factory=Map)
    election_rules: int = ELIGIBLE_LEADER_REPLICAS
    largest_unregistered: int = -1
    """The largest id of a broker that was unregistered. A store that is written again gives no such id to another."""
    acls: AclSet = NO_ACLS
    quotas: Map[tuple[QuotaName, ...], Map[str, float]] = field(default_factory=Map)
    """Whom a quota is for -> quotas by name. `cluster.quotas` reads and changes them."""
    identities: Identities = NO_IDENTITIES
    """Users of SCRAM, and delegation tokens."""
    derived: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Results that were computed from this image and are needed again. They are dropped with the image."""
    lasting: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Like `derived`, but handed on to the image after this one: each result is kept with the parts of the image that
    it was computed from, and counts only while they are the same objects."""

    def replay(self, version: int, changes: Iterable[Change]) -> "Image":
        """The image after the entry `version`. ReplayError if a change does not fit this image."""
        draft = MutableImage(version, *(getattr(self, name) for name in IMAGE_FIELDS[1:]))
        replay(draft, changes)
        after = Image(*(getattr(draft, name) for name in IMAGE_FIELDS))
        if self.lasting:  # the empty image, with which every cluster begins, has none
            object.__setattr__(after, "lasting", self.lasting)
        return after

    def snapshot(self) -> list[Change]:
        """Changes that replay from the empty image into one equal to this. Equal images give equal changes."""
        return write_snapshot(self)

    def digest(self) -> bytes:
        """The digest of this image. Brokers that replayed the same entries have the same digest."""
        return compute_digest(self)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics_by_name[name]

    def topics(self) -> Iterator[TopicImage]:
        """Every topic, by name."""
        for name in sorted(self.topics_by_name):
            yield self.topics_by_name[name]

    def partition(self, name: str, partition: int) -> PartitionImage | None:
        topic = self.topics_by_name.get(name)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

    def partition_by_id(self, topic_id: bytes, partition: int) -> PartitionImage | None:
        topic = self.topic_by_id(topic_id)
        return None if topic is None else self.partition(topic.name, partition)

    def topic_like(self, name: str) -> str | None:
        """A topic whose name is the same but for '.' and '_', which Kafka's metrics cannot tell apart."""
        return self.normalized_names.get(normalize(name))

    def config(self, resource: ConfigResource, name: str) -> Mapping[str, str]:
        """The settings of a topic, broker or group that were set explicitly."""
        return self.configs.get((resource, name), _NO_CONFIG)

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The settings of a topic that were set explicitly."""
        return self.config(ConfigResource.TOPIC, name)

    def topic_rules(self, name: str) -> TopicRules:
        """The settings of a topic that elections depend on."""
        return read_topic_rules(self.configs, name, read_common_rules(self.configs, self.brokers))

    def broker(self, broker_id: int) -> BrokerImage | None:
        return self.brokers.get(broker_id)

    def all_brokers(self) -> list[BrokerImage]:
        """Every registered broker, by id."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers)]

    def serves(self, broker_id: int) -> bool:
        """Whether the broker is registered, not fenced and not about to stop."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.serves

    def offline_replicas(self, partition: PartitionImage, unreachable: frozenset[int] = frozenset()) -> list[int]:
        """Replicas that cannot serve: their broker is gone, fenced or `unreachable`, or their data directory failed."""
        brokers, offline = self.brokers, partition.offline
        return [
            member
            for member in partition.replicas
            if member in offline or member in unreachable or (broker := brokers.get(member)) is None or broker.fenced
        ]

    def alive_brokers(self) -> tuple[BrokerImage, ...]:
        """Every broker that is not fenced, by id."""
        known: tuple[BrokerImage, ...] | None = self.derived.get(_ALIVE)
        if known is None:  # every Metadata answer needs them
            known = self.derived[_ALIVE] = tuple(broker for broker in self.all_brokers() if not broker.fenced)
        return known


EMPTY = Image()
