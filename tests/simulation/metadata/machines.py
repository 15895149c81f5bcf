"""Machines of a simulated cluster: a process or none, data directories, and the log of each replica as a list.

Only what elections depend on is modelled. A machine acts on the metadata as far as it has replayed it (`view`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.cluster.entities import PartitionImage
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.isr_changes import IsrChange

Where = tuple[bytes, int]
"""A partition: topic id and number."""

Record = tuple[int, int]
"""The leader epoch in which it was appended, and a number that no other record has."""


@dataclass(slots=True)
class Proposal:
    """A new ISR that a leader has proposed. `decided_at`: the version at which it was decided, once it was."""

    change: IsrChange
    decided_at: int | None = None


@dataclass(slots=True)
class Replica:
    """A replica's log, and what its broker knows about its followers while it leads."""

    directory: bytes
    records: list[Record] = field(default_factory=list)
    leader_epoch: int = -1
    epoch_start: int = 0
    high_watermark: int = 0
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By follower: the end of its log when it last fetched, and its broker epoch then."""
    proposals: list[Proposal] = field(default_factory=list)

    def begin_epoch(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.epoch_start = len(self.records)
        self.high_watermark = 0
        self.forget_followers()

    def forget_followers(self) -> None:
        self.ends.clear()
        self.proposals.clear()


@dataclass(slots=True)
class Machine:
    """A broker's machine. `epoch` is that of its process, 0 before it has registered."""

    id: int
    directories: list[bytes]
    failed: set[bytes] = field(default_factory=set)
    is_up: bool = False
    is_serving: bool = False
    """Whether the process was unfenced since it started."""
    epoch: int = 0
    stopped_at: int | None = None
    view: Image = EMPTY
    replicas: dict[Where, Replica] = field(default_factory=dict)
    lost: set[Where] = field(default_factory=set)
    """Replicas whose log is gone with a disk, until they are copied again."""

    def usable(self, where: Where) -> Replica | None:
        replica = self.replicas.get(where)
        return None if replica is None or replica.directory in self.failed else replica

    def led(self) -> Iterator[tuple[Where, PartitionImage, Replica]]:
        """What this process leads, as far as it knows."""
        if not self.is_up:
            return
        for where in sorted(self.replicas):
            state, replica = state_of(self.view, where), self.usable(where)
            if state is not None and replica is not None and state.leader == self.id:
                yield where, state, replica

    def forget(self) -> None:
        """The process ends: what it only remembered is gone."""
        self.is_up = self.is_serving = False
        for replica in self.replicas.values():
            replica.forget_followers()
            replica.leader_epoch = -1

    def follow(self, image: Image) -> None:
        """Replay the metadata up to this image: create and delete replicas, lead and follow."""
        self.view = image
        for where in sorted(self.replicas):
            state = state_of(image, where)
            if state is None or self.id not in state.replicas:
                del self.replicas[where]
        for topic in image.topics():
            for index, state in enumerate(topic.partitions):
                if self.id in state.replicas:
                    self._become((topic.id, index), state)

    def _become(self, where: Where, state: PartitionImage) -> None:
        replica = self.replicas.get(where)
        if replica is None:
            usable = [each for each in self.directories if each not in self.failed]
            if not usable:
                return
            replica = self.replicas[where] = Replica(usable[where[1] % len(usable)])
        if state.leader_epoch != replica.leader_epoch:
            replica.begin_epoch(state.leader_epoch)
        replica.proposals = [
            each for each in replica.proposals if each.decided_at is None or each.decided_at >= self.view.version
        ]


def state_of(image: Image, where: Where) -> PartitionImage | None:
    topic = image.topic_by_id(where[0])
    return None if topic is None or where[1] >= len(topic.partitions) else topic.partitions[where[1]]


def partitions_of(image: Image) -> list[Where]:
    return [(topic.id, index) for topic in image.topics() for index in range(len(topic.partitions))]
