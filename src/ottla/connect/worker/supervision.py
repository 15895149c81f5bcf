"""Brings the runs of this worker to what is wanted of them: starts, pauses, restarts and stops them, and never waits.

A run that has to end is asked to, and is replaced or forgotten when it has ended or its time is over. A run that
outlives its time is abandoned: its successor fences it.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.errors import ConnectError
from ottla.connect.worker.runs import (
    ConnectorRun,
    ConnectorSpec,
    RunFactory,
    RunStatus,
    State,
    TargetState,
    TaskState,
)

log = logging.getLogger(__name__)

STOPPED: Final = RunStatus(TaskState(State.STOPPED))


@dataclass(frozen=True)
class Wanted:
    """What is wanted of a connector that is assigned to this worker."""

    config: Mapping[str, str]
    target: TargetState
    incarnation: int = 1


@dataclass(eq=False)
class _Supervised:
    run: ConnectorRun
    made_for: Wanted
    is_paused: bool
    status: RunStatus | None = None
    stop_by_s: float | None = None
    """Until when it may take to end; None if it may go on."""


Publish = Callable[[str, RunStatus | None], None]
"""Takes each change of a connector's status; None: it is not here any more."""


class Supervisor:
    """One thread at a time, but for what runs report, and `owned`."""

    def __init__(
        self,
        make_run: RunFactory,
        make_spec: Callable[[str, Mapping[str, str]], ConnectorSpec],
        publish: Publish,
        *,
        wake: Callable[[], None],
        seconds: Callable[[], float],
        stop_timeout_s: float,
    ) -> None:
        """`wake` is called from any thread when `supervise` has something to do."""
        self._make_run = make_run
        self._make_spec = make_spec
        self._publish = publish
        self._wake = wake
        self._seconds = seconds
        self._stop_timeout_s = stop_timeout_s
        self._runs: dict[str, _Supervised] = {}
        self._without_run: dict[str, Wanted] = {}
        """Connectors that are stopped or could not be started: nothing is done until something else is wanted."""
        self._fenced_s: dict[str, float] = {}
        """When a run was fenced that has not been replaced yet."""
        self._reports: deque[tuple[str, ConnectorRun, RunStatus]] = deque()

    @property
    def owned(self) -> frozenset[str]:
        """The connectors that have a run here, also those that are stopping."""
        return frozenset([*self._runs])

    def list_metrics(self) -> dict[str, tuple[State, Sequence[Mapping[str, float]]]]:
        """The state of each run, and the metrics of its tasks. Callable from any thread."""
        found = {}
        for name, each in [*self._runs.items()]:
            status = each.status
            state = State.UNASSIGNED if status is None else status.connector.state
            found[name] = state, each.run.task_metrics
        return found

    def supervise(self, wanted: Mapping[str, Wanted], confirmed_s: float) -> None:
        """`confirmed_s` is the last time at which the worker was sure that what is assigned to it is its own."""
        self._take_reports()
        for name, each in [*self._runs.items()]:
            if self._must_end(each, wanted.get(name)):
                self._end(each)
            if self._has_ended(each):
                del self._runs[name]
                if name not in wanted:
                    self._fenced_s.pop(name, None)
                    self._publish(name, None)
        for name in [*self._without_run]:
            if self._without_run[name] != wanted.get(name):
                del self._without_run[name]
                if name not in wanted:
                    self._publish(name, None)
        for name, want in wanted.items():
            if name in self._runs:
                self._set_paused(self._runs[name], want.target is TargetState.PAUSED)
            elif name not in self._without_run and self._fenced_s.get(name, -1.0) < confirmed_s:
                self._start(name, want)

    def restart(self, name: str, *, only_failed: bool) -> None:
        """End the run; `supervise` makes another. Does nothing for a connector that has none, and was not to be."""
        each = self._runs.get(name)
        want = self._without_run.get(name)
        if each is not None and not (only_failed and not has_failed(each.status)):
            self._end(each)
            if each.status is not None:
                self._publish(name, mark_restarting(each.status, only_failed=only_failed))
        elif want is not None and want.target is not TargetState.STOPPED:
            del self._without_run[name]

    def stop_all(self) -> None:
        """End all runs and wait for them."""
        for each in self._runs.values():
            self._end(each)
        for each in self._runs.values():
            each.run.join(max((each.stop_by_s or 0.0) - self._seconds(), 0.0))
        self._take_reports()
        for name in [*self._runs, *self._without_run]:
            self._publish(name, None)
        self._runs.clear()
        self._without_run.clear()

    def _take_reports(self) -> None:
        while self._reports:
            name, run, status = self._reports.popleft()
            each = self._runs.get(name)
            if each is None or each.run is not run:
                continue  # of a run that was abandoned
            each.status = status
            if status.is_fenced:
                log.warning("Connector %s was fenced: another producer has its transactional id", name)
                self._fenced_s[name] = self._seconds()
                self._end(each)
            elif each.stop_by_s is None:
                self._publish(name, status)

    def _must_end(self, each: _Supervised, want: Wanted | None) -> bool:
        if want is None or want.target is TargetState.STOPPED:
            return True
        return (want.config, want.incarnation) != (each.made_for.config, each.made_for.incarnation)

    def _end(self, each: _Supervised) -> None:
        if each.stop_by_s is None:
            each.stop_by_s = self._seconds() + self._stop_timeout_s
            each.run.stop()

    def _has_ended(self, each: _Supervised) -> bool:
        if each.stop_by_s is None:
            return False
        if each.run.join(0):
            return True
        return self._seconds() >= each.stop_by_s

    def _set_paused(self, each: _Supervised, is_paused: bool) -> None:
        if each.stop_by_s is None and each.is_paused != is_paused:
            each.is_paused = is_paused
            if is_paused:
                each.run.pause()
            else:
                each.run.resume()

    def _start(self, name: str, want: Wanted) -> None:
        if want.target is TargetState.STOPPED:
            self._without_run[name] = want
            self._publish(name, STOPPED)
            return
        is_paused = want.target is TargetState.PAUSED
        try:
            run = self._make_run(self._make_spec(name, want.config), lambda status: self._report(name, run, status))
            self._runs[name] = _Supervised(run, want, is_paused)
            run.start(paused=is_paused)
        except Exception as error:
            log.error("Connector %s cannot be started: %s", name, error, exc_info=not isinstance(error, ConnectError))
            self._runs.pop(name, None)
            self._without_run[name] = want
            self._publish(name, RunStatus(TaskState(State.FAILED, str(error))))
        self._fenced_s.pop(name, None)

    def _report(self, name: str, run: ConnectorRun, status: RunStatus) -> None:
        """Called from the run's thread."""
        self._reports.append((name, run, status))
        self._wake()


def has_failed(status: RunStatus | None) -> bool:
    return status is not None and State.FAILED in (status.connector.state, *(task.state for task in status.tasks))


def mark_restarting(status: RunStatus, *, only_failed: bool) -> RunStatus:
    """The status with RESTARTING for what is restarted. A connector runs with all its tasks, or not at all."""

    def mark(state: TaskState) -> TaskState:
        return TaskState(State.RESTARTING) if not only_failed or state.state is State.FAILED else state

    return RunStatus(mark(status.connector), tuple(map(mark, status.tasks)), status.topics)
