"""The parts of an image: brokers, topics, partitions, the controller. All are frozen."""

from dataclasses import dataclass, field
from typing import Any

from ottla.cluster.changes import NO_LEADER, Endpoint, SupportedFeature


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A broker as it last registered.

    `fenced`: it does not serve, because it is gone or has only just registered. `clean`: it registered with everything
    that it had acknowledged before. `directories`: the ids of its data directories; `lost_directories`: the ids of
    those that it had in earlier registrations and has no longer. `cordoned`: it was started with all of them cordoned.
    """

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    clean: bool = False
    directories: tuple[bytes, ...] = ()
    features: tuple[SupportedFeature, ...] = ()
    incarnation: bytes = b""
    shutting_down: bool = False
    lost_directories: tuple[bytes, ...] = ()
    cordoned: bool = False

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)

    @property
    def serves(self) -> bool:
        """Whether it can be given a leadership or enter an ISR."""
        return not self.fenced and not self.shutting_down


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Replicas, ISR and leader of a partition. `leader` is -1 while no replica can lead.

    `elr`: eligible leader replicas (KIP-966): they left the ISR when it was smaller than min.insync.replicas, so they
    have every committed record. Like the ISR, `elr` is ordered; it is empty while the ISR is large enough.
    `last_known_leader`: who led last, while nobody leads.
    `recovering`: the leader may lack records that were acknowledged, until another replica is in sync with it.
    `adding`, `removing`: replicas of a reassignment in progress. Both are among `replicas`.
    `offline`: replicas whose data directory failed while their broker is running.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    recovering: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. The number of a partition is its position in `partitions`."""

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...] = ()
    _derived: dict[Any, Any] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def derived(self) -> dict[Any, Any]:
        """Results that were computed from this topic and are needed again. They are dropped when it changes."""
        if self._derived is None:
            object.__setattr__(self, "_derived", {})  # most of 100,000 topics never need it
        assert self._derived is not None
        return self._derived


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """The broker that does the cluster's background work, and the version at which it became the controller."""

    broker_id: int
    broker_epoch: int
    epoch: int
