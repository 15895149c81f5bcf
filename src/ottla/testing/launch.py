"""How a broker under test is started, and the interface to control it, for brokers in a thread and in a process."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

PATIENCE_S = 120.0
"""How long to wait for a broker to finish a command. It usually takes milliseconds."""


class FaultOrder(NamedTuple):
    """Delays, drops or fails the next `times` requests of `api`; None: all of them until the faults are cleared."""

    api: str
    error: int | None = None
    delay_s: float = 0.0
    drop: bool = False
    answer_only: bool = False
    times: int | None = 1


class NetworkState(NamedTuple):
    """The network between the brokers of a cluster: their ports with their ids, and the directions that are cut."""

    ports: Sequence[tuple[int, int]] = ()
    cuts: Sequence[tuple[int, int]] = ()


class ClusterMember(NamedTuple):
    """What a broker needs to be part of a cluster: its id, its name at the store, and where the store is served."""

    broker_id: int
    store_name: str
    store_path: str
    network: NetworkState


class Launch(NamedTuple):
    directory: str
    settings: Mapping[str, str]
    offset_ms: int
    """How far the clock is ahead of the machine's when the broker starts."""
    faults: Sequence[FaultOrder]
    """Faults that exist from the start on."""
    member: ClusterMember | None = None
    """Set for a broker in a child process that belongs to a cluster."""


class Host(Protocol):
    """A running broker, from its start to `stop` or `kill`."""

    ports: Mapping[str, int]
    """The port of each listener, by name."""

    def stop(self) -> None:
        """Finishes requests, flushes the data and closes the broker."""

    def kill(self) -> None:
        """Ends the broker as kill -9 would: nothing is finished, flushed or closed."""

    def add_fault(self, order: FaultOrder) -> None: ...

    def clear_faults(self) -> None: ...

    def advance(self, ms: int) -> None:
        """Moves the clock forward. Returns when the work that became due is done."""

    def ask(self, question: str, *arguments: Any) -> Any:
        """Ask the broker one of the questions of questions.py."""

    def copy_data(self, target: str) -> None:
        """Copies the data directory, as it is at one moment, to `target`, which must not exist."""
