"""Runs that move nothing, and plug-ins that know one class of each kind."""

from collections.abc import Mapping

from ottla.connect.errors import BadConfig
from ottla.connect.worker.herder import ConnectorType
from ottla.connect.worker.runs import ConnectorSpec, RunStatus, State, StatusListener, TaskState

SOURCE = {"connector.class": "FakeSource", "tasks.max": "2"}
SINK = {"connector.class": "FakeSink", "tasks.max": "1"}


class FakeRun:
    def __init__(self, spec: ConnectorSpec, listener: StatusListener, *, ends_when_asked: bool = True) -> None:
        self.spec = spec
        self.listener = listener
        self.calls: list[str] = []
        self.ends_when_asked = ends_when_asked
        self.is_running = False
        self.counters: Mapping[str, float] = {}

    def start(self, *, paused: bool = False) -> None:
        self.is_running = True
        self.calls.append("start paused" if paused else "start")
        self.report(State.PAUSED if paused else State.RUNNING)

    def pause(self) -> None:
        self.calls.append("pause")
        self.report(State.PAUSED)

    def resume(self) -> None:
        self.calls.append("resume")
        self.report(State.RUNNING)

    def stop(self) -> None:
        self.calls.append("stop")
        if self.ends_when_asked:
            self.is_running = False

    def join(self, timeout_s: float) -> bool:
        return not self.is_running

    def report(self, state: State, trace: str | None = None, *, is_fenced: bool = False) -> None:
        task = TaskState(state, trace)
        tasks = (task,) * self.spec.context.tasks_max
        self.listener(RunStatus(TaskState(State.RUNNING), tasks, frozenset({"topic-of-" + self.spec.name}), is_fenced))


class FakeRuns:
    """Makes runs, and remembers them all."""

    def __init__(self, *, ends_when_asked: bool = True) -> None:
        self.made: list[FakeRun] = []
        self.ends_when_asked = ends_when_asked

    def __call__(self, spec: ConnectorSpec, listener: StatusListener) -> FakeRun:
        if spec.config.get("fail") == "start":
            raise BadConfig("it was told to fail")
        run = FakeRun(spec, listener, ends_when_asked=self.ends_when_asked)
        self.made.append(run)
        return run

    def find(self, name: str) -> FakeRun:
        """The last run of a connector."""
        return [run for run in self.made if run.spec.name == name][-1]

    @property
    def running(self) -> set[str]:
        return {run.spec.name for run in self.made if run.is_running}


class FakePlugins:
    def check(self, config: Mapping[str, str]) -> None:
        if config.get("connector.class") not in ("FakeSource", "FakeSink"):
            raise BadConfig(f"there is no connector class {config.get('connector.class')!r}")

    def find_type(self, config: Mapping[str, str]) -> ConnectorType:
        return "sink" if config["connector.class"] == "FakeSink" else "source"

    def find_version(self, config: Mapping[str, str]) -> str | None:
        return "7"
