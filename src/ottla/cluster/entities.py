"""The parts of an image: brokers, topics, partitions, the controller. All are frozen."""

from dataclasses import dataclass

from ottla.cluster.changes import Endpoint


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A broker as it last registered."""

    id: int
    epoch: int
    directory_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    clean: bool

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Replicas, ISR and leader of a partition. `leader` is -1 while no replica can lead.

    `unclean`: the last in-sync replica came back from a crash and may lack records that it acknowledged.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. The number of a partition is its position in `partitions`."""

    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """The broker that does the cluster's background work, and the version at which it became the controller."""

    broker_id: int
    broker_epoch: int
    epoch: int
