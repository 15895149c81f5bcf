"""The changes that the metadata log consists of. `encoding.py` has their form in the log.

One entry of the log holds a few changes that are applied together or not at all.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ottla.cluster.identity_changes import IdentityChange
from ottla.security.acls import Acl

NO_LEADER = -1
ZERO_ID = bytes(16)


class ConfigResource(IntEnum):
    """What a setting belongs to, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class Endpoint(NamedTuple):
    """An address of a broker: the listener's name, host, port, and security protocol."""

    name: str
    host: str
    port: int
    protocol: str


class SupportedFeature(NamedTuple):
    """The levels of a feature that a broker supports, both ends included."""

    name: str
    lowest: int
    highest: int


class QuotaName(NamedTuple):
    """A part of whom a quota is for: a type (user, client-id, ip) and a name; None means the default."""

    type: str
    name: str | None


def quota_order(names: tuple[QuotaName, ...]) -> tuple[tuple[str, bool, str], ...]:
    """The key by which those who have quotas are sorted: names may be None."""
    return tuple((kind, name is not None, name or "") for kind, name in names)


class TopicReplicas(NamedTuple):
    """Some partitions of one topic."""

    topic_id: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SetClusterId:
    """The first change of a cluster."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker starts, or comes back after its session expired. It leaves every ISR and is fenced.

    `directories`: the ids of all its data directories. `clean`: the broker has kept everything that it acknowledged
    since its previous registration; otherwise it is no longer eligible to lead partitions that another replica can
    lead. `incarnation` is a random id of the process.

    The broker epoch is the version of the entry. `epoch` and `lost_directories` are given in snapshots only, because a
    snapshot does not keep earlier entries. `first_rules` marks a registration by a version of Ottla that could not form
    a cluster yet: what follows it is replayed by the election rules of that version. `cordoned`: the broker was started
    with all its directories cordoned.
    """

    broker_id: int
    directories: tuple[bytes, ...]
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    clean: bool = False
    epoch: int = -1
    features: tuple[SupportedFeature, ...] = ()
    incarnation: bytes = b""
    lost_directories: tuple[bytes, ...] = ()
    first_rules: bool = False
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """A broker is gone: it leads nothing and leaves every ISR."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """A broker has caught up with the metadata and serves: it leads partitions without a leader that it may lead."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BeginShutdown:
    """A broker is about to stop: it hands its leaderships over and leaves every ISR in which others remain."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class TakeReplicasOffline:
    """Replicas of a running broker whose data directory failed. They serve again when the broker registers again.

    `lost`: the logs are gone for good. The broker then serves, but it may lead these partitions only after an unclean
    election, or once it has copied them from another leader.
    """

    broker_id: int
    broker_epoch: int
    replicas: tuple[TopicReplicas, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """A fenced broker is removed from the cluster. What it kept is no longer counted on."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class BecomeController:
    """A broker becomes the controller. The controller epoch is the version of the entry, as for RegisterBroker."""

    broker_id: int
    broker_epoch: int
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic without partitions: those follow in the same entry."""

    topic_id: bytes
    name: str


@dataclass(frozen=True, slots=True)
class CreatePartition:
    """The next partition of a topic. The fields after `leader` are given in snapshots only."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    recovering: bool = False
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangePartition:
    """Fields that are None stay as they are. A new leader, and any removal of a replica, raises the leader epoch.

    `partition_epoch` is the epoch that the writer saw. If the partition is at another one, the change is refused.
    Without `leader`, the present leader stays if it can; otherwise replay elects one.
    """

    topic_id: bytes
    partition: int
    partition_epoch: int
    isr: tuple[int, ...] | None = None
    leader: int | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    recovering: bool | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Deletes a topic with its partitions and its settings."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class SetConfig:
    """A setting of a topic, a broker (an empty name means all brokers) or a group. The value None removes it."""

    resource_type: ConfigResource
    resource_name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class SetQuota:
    """A quota of users, client ids or addresses. The value None removes it."""

    entity: tuple[QuotaName, ...]
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ReserveProducerIds:
    """A block of producer ids for one broker."""

    broker_id: int
    broker_epoch: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class SetFeature:
    """The level of a feature of the cluster. Level 0 removes the feature."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class AddAcl:
    """An ACL that is not there yet."""

    acl: Acl


@dataclass(frozen=True, slots=True)
class RemoveAcl:
    """An ACL is taken away. It is named by all of its fields, so it is exactly this one."""

    acl: Acl


@dataclass(frozen=True, slots=True)
class SetElectionRules:
    """Which rules of replay elect leaders from here on. Only a snapshot of an old image needs to say it."""

    level: int


@dataclass(frozen=True, slots=True)
class RememberUnregistered:
    """The largest id of an unregistered broker. Only a snapshot has it; replay of UnregisterBroker notes it."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class VerifyDigest:
    """The digest of the image before this change. A broker whose image has another digest stops: replay disagrees."""

    digest: bytes


Change = (
    SetClusterId
    | RegisterBroker
    | FenceBroker
    | UnfenceBroker
    | BeginShutdown
    | TakeReplicasOffline
    | UnregisterBroker
    | BecomeController
    | CreateTopic
    | CreatePartition
    | ChangePartition
    | DeleteTopic
    | SetConfig
    | SetQuota
    | ReserveProducerIds
    | SetFeature
    | AddAcl
    | RemoveAcl
    | SetElectionRules
    | RememberUnregistered
    | VerifyDigest
    | IdentityChange
)
