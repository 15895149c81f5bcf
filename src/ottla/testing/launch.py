"""What a broker under test is started with, and what it can be told while it runs, in whatever process it lives."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

PATIENCE_S = 120.0  # for a broker to do what it was told; it takes milliseconds


class FaultOrder(NamedTuple):
    """The next `times` calls of `api` are delayed, dropped or answered with an error; None: all until cleared."""

    api: str
    error: int | None = None
    delay_s: float = 0.0
    drop: bool = False
    answer_only: bool = False
    times: int | None = 1


class Launch(NamedTuple):
    directory: str
    settings: Mapping[str, str]
    offset_ms: int
    """How far the clock was moved before this start."""
    faults: Sequence[FaultOrder]
    """Those that wait for the first requests."""


class Host(Protocol):
    """A running broker, from its start to `stop` or `kill`."""

    ports: Mapping[str, int]
    """By the name of the listener."""

    def stop(self) -> None:
        """Finish requests, flush, close."""

    def kill(self) -> None:
        """End as after kill -9: nothing is finished, flushed or closed."""

    def add_fault(self, order: FaultOrder) -> None: ...

    def clear_faults(self) -> None: ...

    def advance(self, ms: int) -> None:
        """Move the clock; return when everything that became due by it is done."""

    def copy_data(self, target: str) -> None:
        """Copy the data directory as it is at one moment, to `target`, which must not be there."""
