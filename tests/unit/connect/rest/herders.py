"""A worker in memory that runs nothing, and connectors to configure: what the tests of the REST server talk to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ottla.connect.connector import Part, Sink, SinkBatch, Source, SourceBatch, Written
from ottla.connect.plugins.built_in import list_built_in
from ottla.connect.plugins.installed import InstalledPlugins
from ottla.connect.plugins.registry import CONNECTORS, Plugin, PluginType, Registry
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.connect.worker.herder import (
    AlreadyExists,
    BadRequest,
    ClusterInfo,
    ConnectorInfo,
    ConnectorMetrics,
    ConnectorOffset,
    ConnectorState,
    ConnectorStatus,
    Health,
    LoggerLevel,
    NotFound,
    TaskId,
    TaskInfo,
    TaskStatus,
)
from ottla.connect.worker.runs import State, TargetState

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
WORKER = "127.0.0.1:8083"


class Lines(Source):
    settings: ClassVar = Settings(
        (
            Setting("file", Kind.STRING, None, "The file to read.", Importance.HIGH),
            Setting("topic", Kind.STRING, REQUIRED, "The topic to write.", Importance.HIGH),
            Setting("batch.size", Kind.INT, 2000, "How many lines.", Importance.LOW),
            Setting("secret", Kind.PASSWORD, None, "A password.", Importance.LOW),
        )
    )

    def plan(self, offsets: Mapping[str, Mapping[str, Any]]) -> Sequence[Part]:
        return []

    def read(self, part: Part, offset: Mapping[str, Any] | None) -> Iterator[SourceBatch]:
        yield from ()


class File(Sink):
    settings: ClassVar = Settings((Setting("file", Kind.STRING, None, "The file to write.", Importance.HIGH),))

    def write(self, batch: SinkBatch) -> Written:
        return Written()


def make_plugins(worker: Mapping[str, str] | None = None) -> InstalledPlugins:
    """The two connectors of Kafka, and what is built in besides connectors."""
    connectors = (
        Plugin(SOURCE, PluginType.SOURCE, "1.0", lambda: Lines),
        Plugin(SINK, PluginType.SINK, "1.0", lambda: File),
    )
    others = [plugin for plugin in list_built_in() if plugin.type not in CONNECTORS]
    return InstalledPlugins(worker or {}, registry=Registry([*connectors, *others]))


class HerderInMemory:
    """Keeps configurations and states; a started connector has one task."""

    def __init__(self, plugins: InstalledPlugins) -> None:
        self.plugins = plugins
        self.clear()

    def clear(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.states: dict[str, TargetState] = {}
        self.traces: dict[str, str] = {}
        self.task_traces: dict[str, str] = {}
        """Why the task of a connector has failed, by connector."""
        self.offsets: dict[str, list[ConnectorOffset]] = {}
        self.levels: dict[str, str] = {}
        self.metrics: dict[str, ConnectorMetrics] = {}
        self.health = Health("healthy", "Worker has completed startup and is ready to handle requests.")

    def list_connectors(self) -> Sequence[str]:
        return list(self.configs)

    def get_connector(self, name: str) -> ConnectorInfo:
        if name not in self.configs:
            raise NotFound(f"Connector {name} not found")
        config = self.configs[name]
        tasks = [] if self.states[name] is TargetState.STOPPED else [TaskId(name, 0)]
        return ConnectorInfo(name, config, tasks, self.plugins.find_type(config))

    def create_connector(
        self, name: str, config: Mapping[str, str], initial_state: TargetState = TargetState.STARTED
    ) -> ConnectorInfo:
        self.plugins.check(config)
        if name in self.configs:
            raise AlreadyExists(f"Connector {name} already exists")
        self.configs[name] = dict(config)
        self.states[name] = initial_state
        return self.get_connector(name)

    def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        self.plugins.check(config)
        is_new = name not in self.configs
        self.configs[name] = dict(config)
        self.states.setdefault(name, TargetState.STARTED)
        return is_new, self.get_connector(name)

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> ConnectorInfo:
        merged = {**self.get_connector(name).config, **changes}
        return self.put_config(name, {key: text for key, text in merged.items() if text is not None})[1]

    def delete_connector(self, name: str) -> None:
        self.get_connector(name)
        del self.configs[name]

    def get_status(self, name: str) -> ConnectorStatus:
        if name not in self.configs:
            raise NotFound(f"No status found for connector {name}")
        info = self.get_connector(name)
        state = State.RUNNING if self.states[name] is TargetState.STARTED else State(self.states[name].value)
        version = self.plugins.find_version(info.config)
        connector = ConnectorState(state, WORKER, self.traces.get(name), version)
        trace = self.task_traces.get(name)
        task_state = State.FAILED if trace else state
        tasks = [TaskStatus(task_state, WORKER, trace, version, task.task) for task in info.tasks]
        return ConnectorStatus(name, connector, tasks, info.type)

    def list_tasks(self, name: str) -> Sequence[TaskInfo]:
        info = self.get_connector(name)
        return [TaskInfo(task, info.config) for task in info.tasks]

    def get_task_status(self, task: TaskId) -> TaskStatus:
        found = [each for each in self.get_status(task.connector).tasks if each.id == task.task]
        if not found:
            raise NotFound(f"No status found for task {task.connector}-{task.task}")
        return found[0]

    def pause(self, name: str) -> None:
        self._set_state(name, TargetState.PAUSED)

    def resume(self, name: str) -> None:
        self._set_state(name, TargetState.STARTED)

    def stop(self, name: str) -> None:
        self._set_state(name, TargetState.STOPPED)

    def _set_state(self, name: str, state: TargetState) -> None:
        if name not in self.configs:
            raise NotFound(f"Unknown connector {name}")
        self.states[name] = state

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
        if name not in self.configs:
            raise NotFound(f"Unknown connector: {name}")
        return self.get_status(name)

    def restart_task(self, task: TaskId) -> None:
        self.get_task_status(task)

    def get_topics(self, name: str) -> Sequence[str]:
        return ["t"] if name in self.configs else []

    def reset_topics(self, name: str) -> None:
        pass

    def get_offsets(self, name: str) -> Sequence[ConnectorOffset]:
        self.get_connector(name)
        return self.offsets.get(name, [])

    def alter_offsets(self, name: str, offsets: Sequence[ConnectorOffset]) -> str:
        self.get_connector(name)
        if self.states[name] is not TargetState.STOPPED:
            raise BadRequest("Connectors must be in the STOPPED state before their offsets can be modified.")
        self.offsets[name] = list(offsets)
        return "The offsets for this connector have been altered successfully"

    def reset_offsets(self, name: str) -> str:
        self.get_connector(name)
        self.offsets.pop(name, None)
        return "The offsets for this connector have been reset successfully"

    def list_loggers(self) -> Mapping[str, LoggerLevel]:
        return {name: LoggerLevel(level, 1) for name, level in self.levels.items()}

    def get_logger(self, name: str) -> LoggerLevel:
        if name not in self.levels:
            raise NotFound(f"Logger {name} not found.")
        return LoggerLevel(self.levels[name], 1)

    def set_logger(self, name: str, level: str, *, whole_cluster: bool) -> Sequence[str]:
        self.levels[name] = level
        return [name]

    def get_cluster_info(self) -> ClusterInfo:
        return ClusterInfo("1.0", "c0ffee", "cluster")

    def list_metrics(self) -> Mapping[str, ConnectorMetrics]:
        return self.metrics

    def get_health(self) -> Health:
        return self.health
