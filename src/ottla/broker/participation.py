"""How a broker takes part in a cluster: what differs between a broker alone and a member of a cluster of several.

`alone.py` keeps the metadata in a local directory, `member.py` in ZooKeeper. `broker.py` calls the same methods of
either, in the order in which they stand here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from ottla.broker.node import Node
from ottla.cluster.changes import Endpoint
from ottla.cluster.metadata import Metadata
from ottla.config import BrokerConfig
from ottla.storage.directories import DataDirectory
from ottla.storage.files import Disk
from ottla.system.background import Job
from ottla.system.clock import Clock
from ottla.system.threads import Offload


@dataclass(frozen=True, slots=True)
class Doors:
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

    async def open(self, config: BrokerConfig, directories: Sequence[DataDirectory]) -> Metadata:
        """Check that the directories belong to this broker, and load the metadata. Nothing is changed in it."""

    async def join(self, node: Node, ports: Mapping[str, int]) -> None:
        """Register, and return when this broker may serve clients on its listeners, which have these ports."""

    def jobs(self) -> list[Job]:
        """Work to be repeated while the broker serves."""

    async def leave(self, deadline_s: float) -> None:
        """The broker is about to stop: let others take over what it leads, if there are others."""

    async def close(self) -> None:
        """The broker has stopped, and every log is closed."""

    def abandon(self) -> None:
        """The broker ends at once, as if killed."""


def find_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """The endpoints to register. Without advertised.listeners they have no host: `addresses` chooses it per client."""
    endpoints = config.endpoints
    if endpoints.advertised is not None:
        return tuple(Endpoint(*listener) for listener in endpoints.advertised)
    return tuple(Endpoint(listener.name, "", 0, listener.protocol) for listener in endpoints.bound)


def was_clean(directories: Sequence[DataDirectory]) -> bool:
    """Whether every directory that is in service was closed by a clean shutdown."""
    return all(directory.was_clean for directory in directories if directory.failure is None)
