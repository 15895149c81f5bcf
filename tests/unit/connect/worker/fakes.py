"""Runs that move nothing, and plug-ins that know one class of each kind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ottla.connect.connector import (
    Connector,
    Part,
    Sink,
    SinkBatch,
    Source,
    SourceBatch,
    SourceOffset,
    Written,
)
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.settings.definition import Settings
from ottla.connect.worker.herder import ConnectorType
from ottla.connect.worker.runs import ConnectorSpec, RunStatus, State, StatusListener, TaskState
from ottla.topic_partition import TopicPartition

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
        self.task_metrics: Sequence[Mapping[str, float]] = [{}] * spec.context.tasks_max

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


class FakeSource(Source):
    settings = Settings(())

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        return []

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        return iter(())


class FakeSink(Sink):
    """Writes nothing. With `keeps` in its configuration its target has offsets, which `fixed` ones cannot change."""

    settings = Settings(())
    altered: ClassVar[list[Mapping[TopicPartition, int | None]]] = []

    def alter_positions(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        match self.config.get("keeps"):
            case None:
                return False
            case "fixed":
                raise ConnectError("the offsets are fixed")
        self.altered.append(positions)
        return True

    def write(self, batch: SinkBatch) -> Written:
        return Written()


class FakePlugins:
    def check(self, config: Mapping[str, str]) -> None:
        if config.get("connector.class") not in ("FakeSource", "FakeSink"):
            raise BadConfig(f"there is no connector class {config.get('connector.class')!r}")

    def find_type(self, config: Mapping[str, str]) -> ConnectorType:
        return "sink" if config["connector.class"] == "FakeSink" else "source"

    def make_connector(self, spec: ConnectorSpec) -> Connector:
        return (FakeSink if spec.config["connector.class"] == "FakeSink" else FakeSource)(spec.config, spec.context)

    def find_version(self, config: Mapping[str, str]) -> str | None:
        return "7"
