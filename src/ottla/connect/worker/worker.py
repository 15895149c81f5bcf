"""The worker's own thread: follows the configurations and the group, keeps runs as they should be, writes statuses.

Each step takes what is new from everybody else (configurations, assignment, reports of runs) and acts on it. A step
that fails because the Kafka cluster is away is repeated; runs go on meanwhile.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Final, Protocol

from ottla.client.backoff import now_ms
from ottla.client.connection import Unreachable
from ottla.connect.errors import ConnectError
from ottla.connect.worker.assignment import TakeoverDelay, assign
from ottla.connect.worker.configs import Changes, ConfigState, ConfigStore, put_tasks
from ottla.connect.worker.loggers import Loggers
from ottla.connect.worker.membership import Assignment
from ottla.connect.worker.runs import RunStatus, State, TargetState, TaskState
from ottla.connect.worker.statuses import (
    StatusStore,
    StoredStatus,
    connector_key,
    task_key,
    topic_key,
    topic_status,
)
from ottla.connect.worker.supervision import Supervisor, Wanted
from ottla.errors import KafkaError

log = logging.getLogger(__name__)

STEP_S: Final = 0.25
"""How often a worker looks for what other workers have changed."""


class Group(Protocol):
    """The worker's group: `Membership`, or for a standalone worker one in which it is alone."""

    @property
    def assignment(self) -> Assignment | None: ...

    @property
    def confirmed_s(self) -> float: ...

    @property
    def is_certain(self) -> bool: ...

    @property
    def trouble(self) -> str | None: ...

    def start(self) -> None: ...

    def rejoin(self) -> None: ...

    def stop(self) -> None: ...


class Worker:
    def __init__(
        self,
        worker_id: str,
        configs: ConfigStore,
        statuses: StatusStore,
        loggers: Loggers,
        *,
        make_supervisor: "Callable[[Worker], Supervisor]",
        make_group: "Callable[[Worker], Group]",
        delay: TakeoverDelay,
        find_version: Callable[[Mapping[str, str]], str | None],
        tracks_topics: bool,
    ) -> None:
        self.worker_id = worker_id
        self.configs = configs
        self.statuses = statuses
        self.loggers = loggers
        self.is_ready = False
        """Whether the configurations have been read, and the group was joined once."""
        self._delay = delay
        self._find_version = find_version
        self._tracks_topics = tracks_topics
        self._trouble: str | None = None
        self._unwritten: dict[str, Mapping[str, Any] | None] = {}
        """Statuses by their keys."""
        self._task_counts: dict[str, int] = {}
        """How many tasks each connector of this worker has said to have."""
        self._is_stopping = False
        self._event = Event()
        self.supervisor = make_supervisor(self)
        self.group = make_group(self)
        self._thread = Thread(target=self._run, name="connect-worker", daemon=True)

    @property
    def trouble(self) -> str | None:
        """Why the worker cannot do its work now, in one line."""
        return self._trouble or self.group.trouble

    def start(self) -> None:
        """Read the configurations, join the group and keep going. Raises KafkaError if the topics cannot be read."""
        self.configs.refresh()
        self.configs.state.take_restarts()  # of the past
        self.statuses.refresh()
        self.group.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop the runs, then leave the group, so that others take over at once."""
        self._is_stopping = True
        self._event.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join()
        self.group.stop()
        self.configs.close()
        self.statuses.close()

    def wake(self) -> None:
        """Callable from any thread."""
        self._event.set()

    def decide_assignment(self, owned: Mapping[str, frozenset[str]]) -> tuple[Mapping[str, list[str]], frozenset[str]]:
        """The leader's part of a rebalance. Called from the group's thread."""
        self.configs.refresh()
        known = frozenset([*self.configs.state.connectors])
        assigned = assign(owned, known, self._delay.hold_back(owned))
        self._delay.remember(assigned)
        return assigned, known

    def publish(self, name: str, status: RunStatus | None) -> None:
        """Take a status of a run, to be written at the end of the step."""
        if status is None:
            self._task_counts.pop(name, None)
            self._publish_end(name)
            return
        self._put(connector_key(name), name, status.connector)
        is_starting = not status.tasks and status.connector.state in (State.RUNNING, State.PAUSED)
        if not is_starting:
            self._publish_tasks(name, status.tasks)
        elif status.connector.state is State.PAUSED:  # it has not made its tasks anew, and does not before it goes on
            self._publish_tasks(name, [status.connector] * len(self.configs.state.tasks.get(name, [])))
        if self._tracks_topics:
            in_use = self.statuses.state.topics.get(name, set())
            for topic in sorted(status.topics - in_use):
                self._unwritten[topic_key(name, topic)] = topic_status(name, topic, now_ms())
        if status.tasks or status.connector.state is State.STOPPED:
            self._task_counts[name] = len(status.tasks)

    def delete_statuses(self, name: str) -> dict[str, None]:
        """The records that remove all statuses of a connector."""
        state = self.statuses.state
        tasks = [task_key(name, number) for number in state.tasks.get(name, {})]
        topics = [topic_key(name, topic) for topic in state.topics.get(name, ())]
        return dict.fromkeys([connector_key(name), *tasks, *topics])

    # Steps

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._step()
            except Exception as error:
                self._trouble = f"{type(error).__name__}: {error}"
                log.exception("A step of the worker has failed; it is tried again")
            self._event.wait(STEP_S)
            self._event.clear()
        self.supervisor.stop_all()
        self._try(self._write_statuses)

    def _step(self) -> None:
        is_current = self._try(self._read)
        assignment = self.group.assignment
        revoked = self.supervisor.owned - assignment.connectors if assignment is not None else frozenset()
        self.supervisor.supervise(self._list_wanted(assignment), self.group.confirmed_s)
        if is_current and self._try(self._write_task_counts) and self._try(self._write_statuses):
            self._trouble = None
            self.is_ready = self.is_ready or assignment is not None
        if assignment is not None:
            self._rebalance_if_needed(assignment, has_given_up=bool(revoked) and not revoked & self.supervisor.owned)

    def _try(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except (KafkaError, Unreachable, ConnectError) as error:
            if str(error) != self._trouble:
                log.warning("The worker tries again: %s", error)
            self._trouble = str(error)
            return False
        return True

    def _read(self) -> None:
        self.configs.refresh()
        self.statuses.refresh()
        for request in self.configs.state.take_restarts():
            self.supervisor.restart(request.connector, only_failed=request.only_failed)
        for name, level in [*self.configs.state.loggers.items()]:
            self.loggers.set_once(name, level)

    def _list_wanted(self, assignment: Assignment | None) -> dict[str, Wanted]:
        """What this worker has to run. Nothing is started unless the worker certainly is a member of its group."""
        if assignment is None:
            return {}
        state = self.configs.state
        owned = self.supervisor.owned
        is_certain = self.group.is_certain
        return {
            name: Wanted(state.connectors[name], state.find_target(name), state.incarnations[name])
            for name in sorted(assignment.connectors)
            if name in state.connectors and (is_certain or name in owned)
        }

    def _rebalance_if_needed(self, assignment: Assignment, *, has_given_up: bool) -> None:
        """Ask for a rebalance after a connector was created or given up; the leader also after one was deleted, and
        when the time of a lost worker is over."""
        known = frozenset([*self.configs.state.connectors])
        if (
            has_given_up
            or known - assignment.known
            or (assignment.is_leader and (assignment.known - known or self._delay.is_over()))
        ):
            self.group.rejoin()

    # Statuses

    def _put(self, key: str, name: str, status: TaskState) -> None:
        generation = self.group.assignment.generation if self.group.assignment is not None else 0
        version = self._find_version(self.configs.state.connectors.get(name, {}))
        stored = StoredStatus(status.state, status.trace, self.worker_id, generation, version)
        self._unwritten[key] = stored.to_json()

    def _publish_tasks(self, name: str, tasks: Sequence[TaskState]) -> None:
        for number, task in enumerate(tasks):
            self._put(task_key(name, number), name, task)
        for number in [*self.statuses.state.tasks.get(name, {})]:
            if number >= len(tasks):
                self._unwritten[task_key(name, number)] = None

    def _publish_end(self, name: str) -> None:
        """A connector is not here any more: it was deleted, or it waits for another worker."""
        if name not in self.configs.state.connectors:
            self._unwritten |= self.delete_statuses(name)
            return
        self._put(connector_key(name), name, TaskState(State.UNASSIGNED))
        for number in [*self.statuses.state.tasks.get(name, {})]:
            self._put(task_key(name, number), name, TaskState(State.UNASSIGNED))

    def _write_statuses(self) -> None:
        if self._unwritten:
            generation = self.group.assignment.generation if self.group.assignment is not None else 0
            may_write = self.statuses.state.may_write
            taken = {**self._unwritten}
            records = [(key, value) for key, value in taken.items() if may_write(key, self.worker_id, generation)]
            self.statuses.write(records)
            self._unwritten = {key: value for key, value in self._unwritten.items() if key not in taken}

    def _write_task_counts(self) -> None:
        """Write configurations of tasks for those who ask how many there are."""
        for name, count in [*self._task_counts.items()]:
            if len(self.configs.state.tasks.get(name, [])) != count:
                self.configs.change(lambda state, name=name, count=count: _put_task_count(state, name, count))  # type: ignore[misc]
            del self._task_counts[name]


def _put_task_count(state: ConfigState, name: str, count: int) -> Changes:
    config = state.connectors.get(name)
    is_stopped = state.find_target(name) is TargetState.STOPPED
    if config is None or (is_stopped and count) or len(state.tasks.get(name, [])) == count:
        return []
    return put_tasks(name, [config] * count)
