"""What a running connector is to the worker. The worker decides which connectors run here; a run moves the rows.

A run has all tasks of its connector. It is made for one configuration and started once: a connector that is restarted
or reconfigured gets a new run after the old one has stopped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ottla.connect.connector import ConnectorContext


class State(Enum):
    """The state of a connector or of one of its tasks, as Kafka Connect names it."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class TargetState(Enum):
    """What a user wants of a connector."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True)
class ConnectorSpec:
    """What a run is made from."""

    name: str
    config: Mapping[str, str]
    """As the user gave it: references to config providers are not resolved yet."""
    worker: Mapping[str, str]
    """The properties of the worker: default converters, client settings with their prefixes, offset.storage.topic."""
    context: ConnectorContext


@dataclass(frozen=True)
class TaskState:
    state: State
    trace: str | None = None
    """Why it failed, why it is trying again, or what it waits for until its first batch is done; the first line says it
    in one sentence. Free of secrets."""


@dataclass(frozen=True)
class RunStatus:
    """A snapshot of a run."""

    connector: TaskState
    tasks: tuple[TaskState, ...] = ()
    """By number of the task."""
    topics: frozenset[str] = frozenset()
    """Topics that records were written to or read from since the run was made."""
    is_fenced: bool = False
    """True in the last status of a run whose transactional id was taken over by another producer.

    Such a run ends by itself and must not take the id back, for its worker may have lost the connector to another one.
    The worker makes a new run once a heartbeat has confirmed that the connector is still its own.
    """


StatusListener = Callable[[RunStatus], None]
"""Called from the run's own thread after each change. It must not wait for the run, and it raises nothing."""


class ConnectorRun(Protocol):
    """All methods return soon, and may be called from any thread, but for `join`."""

    def start(self, *, paused: bool = False) -> None:
        """Start the run's thread. Before it moves anything, the run fences every earlier run of the connector."""

    def pause(self) -> None:
        """Finish the batch that is under way and begin no other."""

    def resume(self) -> None: ...

    def stop(self) -> None:
        """Ask the run to end: the batch that is under way may finish. The listener is not called after `join`."""

    def join(self, timeout_s: float) -> bool:
        """Wait for the end after `stop`. False: it has not ended in time and is abandoned; its successor fences it."""

    @property
    def counters(self) -> Mapping[str, float]:
        """Metrics by Kafka's names, such as source-record-write-total."""

    @property
    def task_metrics(self) -> Sequence[Mapping[str, float]]:
        """Those of each task, and `lag`: records of topics that a sink has not read."""


class RunFactory(Protocol):
    def __call__(self, spec: ConnectorSpec, listener: StatusListener) -> ConnectorRun: ...
