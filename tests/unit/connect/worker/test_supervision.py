"""The supervisor brings runs to what is wanted, without waiting for them."""

from collections.abc import Mapping

from ottla.connect.connector import ConnectorContext
from ottla.connect.worker.runs import ConnectorSpec, RunStatus, State, TargetState
from ottla.connect.worker.supervision import STOPPED, Supervisor, Wanted
from tests.unit.connect.worker.fakes import FakeRuns

CONFIG = {"tasks.max": "1"}
STARTED = Wanted(CONFIG, TargetState.STARTED)
FOREVER = float("inf")


class Bench:
    """A supervisor with its surroundings."""

    def __init__(self, *, ends_when_asked: bool = True) -> None:
        self.runs = FakeRuns(ends_when_asked=ends_when_asked)
        self.now_s = 0.0
        self.published: list[tuple[str, State | None]] = []
        self.supervisor = Supervisor(
            self.runs,
            self.make_spec,
            self.publish,
            wake=lambda: None,
            seconds=lambda: self.now_s,
            stop_timeout_s=5,
        )

    def make_spec(self, name: str, config: Mapping[str, str]) -> ConnectorSpec:
        return ConnectorSpec(name, config, {}, ConnectorContext(name, "group", 1, {}))

    def publish(self, name: str, status: RunStatus | None) -> None:
        if status is None:
            self.published.append((name, None))
        else:
            self.published.append((name, status.tasks[0].state if status.tasks else status.connector.state))

    def step(self, confirmed_s: float = FOREVER, **wanted: Wanted) -> list[tuple[str, State | None]]:
        """One step, and another for what runs report in it. Returns what was published."""
        self.published = []
        self.supervisor.supervise(wanted, confirmed_s)
        self.supervisor.supervise(wanted, confirmed_s)
        return self.published


def test_a_connector_starts_pauses_resumes_and_ends() -> None:
    bench = Bench()
    assert bench.step(a=STARTED) == [("a", State.RUNNING)]
    assert bench.step(a=STARTED) == []
    assert bench.step(a=Wanted(CONFIG, TargetState.PAUSED)) == [("a", State.PAUSED)]
    assert bench.step(a=STARTED) == [("a", State.RUNNING)]
    assert bench.supervisor.owned == {"a"}
    assert bench.step() == [("a", None)]
    assert bench.supervisor.owned == set()
    assert bench.runs.find("a").calls == ["start", "pause", "resume", "stop"]


def test_a_new_configuration_makes_a_new_run_after_the_old_one_has_ended() -> None:
    bench = Bench(ends_when_asked=False)
    bench.step(a=STARTED)
    changed = Wanted({"tasks.max": "1", "x": "y"}, TargetState.STARTED)
    bench.step(a=changed)
    assert len(bench.runs.made) == 1
    assert bench.supervisor.owned == {"a"}
    bench.runs.made[0].is_running = False
    bench.step(a=changed)
    assert [run.spec.config for run in bench.runs.made] == [CONFIG, changed.config]


def test_a_run_that_does_not_end_in_time_is_abandoned_and_not_listened_to() -> None:
    bench = Bench(ends_when_asked=False)
    bench.step(a=STARTED)
    stuck = bench.runs.made[0]
    bench.step()
    assert bench.supervisor.owned == {"a"}
    bench.now_s = 5.0
    assert bench.step() == [("a", None)]
    assert bench.supervisor.owned == set()
    stuck.report(State.FAILED)
    assert bench.step(a=STARTED) == [("a", State.RUNNING)]


def test_a_stopped_connector_has_no_run() -> None:
    bench = Bench()
    stopped = Wanted(CONFIG, TargetState.STOPPED)
    assert bench.step(a=stopped) == [("a", STOPPED.connector.state)]
    assert bench.step(a=stopped) == []
    assert bench.supervisor.owned == set()
    assert bench.step(a=STARTED) == [("a", State.RUNNING)]
    assert bench.step(a=stopped) == [("a", State.STOPPED)]
    bench.supervisor.restart("a", only_failed=False)
    assert bench.step(a=stopped) == []
    assert bench.runs.running == set()


def test_a_connector_that_cannot_be_made_fails_until_something_else_is_wanted() -> None:
    bench = Bench()
    bad = Wanted({"fail": "start"}, TargetState.STARTED)
    assert bench.step(a=bad, b=STARTED) == [("a", State.FAILED), ("b", State.RUNNING)]
    assert bench.step(a=bad, b=STARTED) == []
    bench.supervisor.restart("a", only_failed=True)
    assert bench.step(a=bad, b=STARTED) == [("a", State.FAILED)]
    assert bench.step(a=STARTED, b=STARTED) == [("a", State.RUNNING)]


def test_only_failed_runs_are_restarted_if_that_is_asked_for() -> None:
    bench = Bench()
    bench.step(a=STARTED)
    bench.supervisor.restart("a", only_failed=True)
    bench.step(a=STARTED)
    assert len(bench.runs.made) == 1
    bench.runs.made[0].report(State.FAILED, "broken")
    assert bench.step(a=STARTED) == [("a", State.FAILED)]
    bench.supervisor.restart("a", only_failed=True)
    assert bench.step(a=STARTED) == [("a", State.RUNNING)]
    bench.supervisor.restart("a", only_failed=False)
    bench.step(a=STARTED)
    assert [run.calls for run in bench.runs.made] == [["start", "stop"], ["start", "stop"], ["start"]]


def test_a_fenced_run_is_replaced_only_after_the_group_has_confirmed_the_worker() -> None:
    bench = Bench()
    bench.step(0.0, a=STARTED)
    bench.now_s = 10.0
    bench.runs.made[0].report(State.FAILED, is_fenced=True)
    assert bench.step(9.0, a=STARTED) == []
    assert bench.step(10.0, a=STARTED) == []
    assert bench.runs.running == set()
    assert bench.step(10.5, a=STARTED) == [("a", State.RUNNING)]


def test_at_the_end_all_runs_end() -> None:
    bench = Bench()
    bench.step(a=STARTED, b=Wanted(CONFIG, TargetState.STOPPED))
    bench.published = []
    bench.supervisor.stop_all()
    assert bench.published == [("a", None), ("b", None)]
    assert bench.runs.running == set()
