"""How a broker takes part in a cluster: what differs between a broker alone and a member of a cluster of several.

`alone.py` keeps the metadata in a local directory, `member.py` in ZooKeeper. `broker.py` calls the same methods of
either, in the order in which they stand here.
"""

from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.broker.node import Node
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata
from ottla.config import BrokerConfig
from ottla.observability.metrics import StoreMeter
from ottla.replication.assembly import Replication
from ottla.storage.directories import DataDirectory
from ottla.storage.files import Disk
from ottla.system.background import Job
from ottla.system.clock import Clock
from ottla.system.threads import Offload

if TYPE_CHECKING:
    from ottla.replication.peers import Peers

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Environment:
    """What a broker uses of the machine that it runs on. A simulation replaces all of it."""

    disk: Disk
    clock: Clock
    random: Random
    offload: Offload
    fail: Callable[[str], None]
    """Ends the broker, for a reason that fits in one line."""


class Participation(Protocol):
    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before it has registered."""

    @property
    def catch_up(self) -> Callable[[], Awaitable[None]] | None:
        """See `Node.catch_up`."""

    @property
    def is_connected(self) -> bool:
        """See `Node.is_connected`."""

    @property
    def store_meter(self) -> StoreMeter:
        """Counters for the connection to the store. They stay at 0 where there is none."""

    async def choose_node_id(self, config: BrokerConfig, directories: Sequence[DataDirectory]) -> BrokerConfig:
        """The settings with the id of this broker."""

    async def open(self, config: BrokerConfig, directories: Sequence[DataDirectory]) -> Metadata:
        """Check that the directories belong to this broker, and load the metadata. Nothing is changed in it."""

    @property
    def initial_image(self) -> Image:
        """The metadata by which the logs are opened, once `open` has returned. What it does not know is a stray."""

    def build(self, replication: Replication) -> "Peers | None":
        """The connections to the other brokers; None if there are no others."""

    async def join(self, node: Node, ports: Mapping[str, int]) -> None:
        """Register. The listeners have these ports, but nobody is served yet."""

    async def change_at_start(self, decide: Callable[[Image], Decision[R]]) -> R:
        """Change the metadata after `join` and before `serve`, while nothing else keeps the broker registered.

        The change must do no harm if it is made twice.
        """

    async def serve(self) -> None:
        """Connections are accepted from now on."""

    def jobs(self) -> list[Job]:
        """Work to be repeated while the broker serves."""

    async def leave(self, deadline_s: float) -> None:
        """The broker is about to stop: let others take over what it leads, if there are others."""

    async def quiesce(self) -> None:
        """No request is served any more, and the logs are about to be closed: write nothing to them."""

    async def close(self) -> None:
        """The broker has stopped, and every log is closed."""

    def abandon(self) -> None:
        """The broker ends at once, as if killed."""


def were_closed_cleanly(directories: Sequence[DataDirectory]) -> bool:
    """Whether every directory that is in service was closed by a clean shutdown."""
    return all(directory.was_clean for directory in directories if directory.failure is None)


def make_cluster_id(random: Random) -> str:
    """A random id, as Kafka writes those of clusters."""
    return urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
