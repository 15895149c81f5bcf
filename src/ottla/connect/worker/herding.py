"""Answers what users ask of a worker: the herder of both kinds of worker, over its stores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ottla import __version__
from ottla.client.client import Client
from ottla.connect.errors import BadConfig
from ottla.connect.worker import configs
from ottla.connect.worker.configs import Changes, ConfigState, RestartRequest
from ottla.connect.worker.herder import (
    AlreadyExists,
    BadRequest,
    ClusterInfo,
    ConnectorInfo,
    ConnectorMetrics,
    ConnectorOffset,
    ConnectorState,
    ConnectorStatus,
    Forbidden,
    Health,
    LoggerLevel,
    NotFound,
    Plugins,
    TaskId,
    TaskInfo,
    TaskStatus,
)
from ottla.connect.worker.offset_changes import OffsetChanges
from ottla.connect.worker.runs import State, TargetState
from ottla.connect.worker.statuses import StoredStatus, topic_key
from ottla.connect.worker.worker import Worker
from ottla.wire.messages.metadata import MetadataRequest

COMMIT = "unknown"
"""The commit that was built, which an installed package does not know."""


@dataclass(frozen=True)
class TopicTracking:
    is_enabled: bool
    may_reset: bool


class WorkerHerder:
    """Fulfils `Herder`. For several threads."""

    def __init__(
        self,
        worker: Worker,
        plugins: Plugins,
        offsets: OffsetChanges,
        tracking: TopicTracking,
        make_client: Callable[[], Client],
    ) -> None:
        self._worker = worker
        self._plugins = plugins
        self._offsets = offsets
        self._tracking = tracking
        self._make_client = make_client

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """Stop the connectors of this worker and leave the group."""
        self._worker.stop()

    # Configurations

    def list_connectors(self) -> Sequence[str]:
        return sorted([*self._state.connectors])

    def get_connector(self, name: str) -> ConnectorInfo:
        config = self._find_config(self._state, name)
        count = len(self._state.tasks.get(name, []))
        tasks = [TaskId(name, number) for number in range(count)]
        return ConnectorInfo(name, config, tasks, self._plugins.find_type(config))

    def create_connector(
        self, name: str, config: Mapping[str, str], initial_state: TargetState = TargetState.STARTED
    ) -> ConnectorInfo:
        complete = self._check(name, config)

        def decide(state: ConfigState) -> Changes:
            if name in state.connectors:
                raise AlreadyExists(f"Connector {name} already exists")
            target = [] if initial_state is TargetState.STARTED else configs.put_target(name, initial_state)
            return [*target, *configs.put_connector(name, complete)]

        self._change(decide)
        return self.get_connector(name)

    def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        complete = self._check(name, config)
        is_new = True

        def decide(state: ConfigState) -> Changes:
            nonlocal is_new
            is_new = name not in state.connectors
            return configs.put_connector(name, complete)

        self._change(decide)
        return is_new, self.get_connector(name)

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> ConnectorInfo:
        def decide(state: ConfigState) -> Changes:
            merged = {**self._find_config(state, name), **changes}
            kept = {key: value for key, value in merged.items() if value is not None}
            return configs.put_connector(name, self._check(name, kept))

        self._change(decide)
        return self.get_connector(name)

    def delete_connector(self, name: str) -> None:
        def decide(state: ConfigState) -> Changes:
            self._find_config(state, name)
            return configs.delete_connector(name)

        self._change(decide)
        self._worker.statuses.write([*self._worker.delete_statuses(name).items()])

    def list_tasks(self, name: str) -> Sequence[TaskInfo]:
        self._find_config(self._state, name)
        tasks = self._state.tasks.get(name, [])
        return [TaskInfo(TaskId(name, number), config) for number, config in enumerate(tasks)]

    # States

    def get_status(self, name: str) -> ConnectorStatus:
        missing = f"No status found for connector {name}"
        config = self._find_config(self._state, name, missing)
        stored = self._worker.statuses.state
        connector = stored.connectors.get(name)
        if connector is None:
            raise NotFound(missing)
        tasks = [_describe_task(number, status) for number, status in sorted(stored.tasks.get(name, {}).items())]
        return ConnectorStatus(name, _describe(connector), tasks, self._plugins.find_type(config))

    def get_task_status(self, task: TaskId) -> TaskStatus:
        missing = f"No status found for task {task.connector}-{task.task}"
        self._find_config(self._state, task.connector, missing)
        stored = self._worker.statuses.state.tasks.get(task.connector, {}).get(task.task)
        if stored is None:
            raise NotFound(missing)
        return _describe_task(task.task, stored)

    def pause(self, name: str) -> None:
        self._set_target(name, TargetState.PAUSED)

    def resume(self, name: str) -> None:
        self._set_target(name, TargetState.STARTED)

    def stop(self, name: str) -> None:
        self._set_target(name, TargetState.STOPPED)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
        self._find_config(self._state, name, f"Unknown connector: {name}")
        status = self.get_status(name)
        self._request_restart(RestartRequest(name, include_tasks, only_failed))

        def will_restart(state: ConnectorState) -> bool:
            return state.state is State.FAILED or not only_failed

        connector = status.connector
        if will_restart(connector):
            connector = ConnectorState(State.RESTARTING, connector.worker_id, None, connector.version)
        tasks = [
            TaskStatus(State.RESTARTING, task.worker_id, None, task.version, task.id)
            if include_tasks and will_restart(task)
            else task
            for task in status.tasks
        ]
        return ConnectorStatus(name, connector, tasks, status.type)

    def restart_task(self, task: TaskId) -> None:
        self._find_config(self._state, task.connector, f"Unknown connector: {task.connector}")
        if task.task not in range(len(self._state.tasks.get(task.connector, []))):
            raise NotFound(f"Unknown task: {task.connector}-{task.task}")
        self._request_restart(RestartRequest(task.connector, include_tasks=True, only_failed=False))

    # Topics and offsets

    def get_topics(self, name: str) -> Sequence[str]:
        """Of a connector that does not exist too: it has none."""
        self._require_tracking()
        return sorted(self._worker.statuses.state.topics.get(name, ()))

    def reset_topics(self, name: str) -> None:
        topics = self.get_topics(name)
        if not self._tracking.may_reset:
            raise Forbidden("Topic tracking reset is disabled (topic.tracking.allow.reset=false)")
        self._worker.statuses.write([(topic_key(name, topic), None) for topic in topics])

    def get_offsets(self, name: str) -> Sequence[ConnectorOffset]:
        config = self._find_config(self._state, name)
        return self._offsets.read(name, config, self._plugins.find_type(config))

    def alter_offsets(self, name: str, offsets: Sequence[ConnectorOffset]) -> str:
        config = self._require_stopped(name)
        is_complete = self._offsets.alter(name, config, self._plugins.find_type(config), offsets)
        return _describe_change("altered", is_complete=is_complete)

    def reset_offsets(self, name: str) -> str:
        config = self._require_stopped(name)
        is_complete = self._offsets.reset(name, config, self._plugins.find_type(config))
        return _describe_change("reset", is_complete=is_complete)

    # The worker

    def list_loggers(self) -> Mapping[str, LoggerLevel]:
        return self._worker.loggers.list_levels()

    def get_logger(self, name: str) -> LoggerLevel:
        return self._worker.loggers.get_level(name)

    def set_logger(self, name: str, level: str, *, whole_cluster: bool) -> Sequence[str]:
        changed = self._worker.loggers.set_level(name, level)
        if whole_cluster:
            self._change(lambda _: configs.put_logger(name, level.upper()))
        return changed

    def get_cluster_info(self) -> ClusterInfo:
        client = self._make_client()
        try:
            answer = client.ask_any(MetadataRequest(topics=[]))
        finally:
            client.close()
        return ClusterInfo(__version__, COMMIT, answer.cluster_id or "")

    def get_health(self) -> Health:
        trouble = self._worker.trouble
        if not self._worker.is_ready:
            return Health("starting", trouble or "Worker is still starting up.")
        return (
            Health("healthy", "Worker has completed startup and is ready to handle requests.")
            if trouble is None
            else Health("unhealthy", trouble)
        )

    def list_metrics(self) -> Mapping[str, ConnectorMetrics]:
        configurations = {**self._state.connectors}
        return {
            name: ConnectorMetrics(self._plugins.find_type(configurations[name]), state, tasks)
            for name, (state, tasks) in sorted(self._worker.supervisor.list_metrics().items())
            if name in configurations
        }

    # Parts

    @property
    def _state(self) -> ConfigState:
        return self._worker.configs.state

    def _change(self, decide: Callable[[ConfigState], Changes]) -> None:
        self._worker.configs.change(decide)
        self._worker.wake()

    def _set_target(self, name: str, target: TargetState) -> None:
        def decide(state: ConfigState) -> Changes:
            self._find_config(state, name, f"Unknown connector {name}")
            if state.find_target(name) is target:
                return []
            tasks = configs.put_tasks(name, []) if target is TargetState.STOPPED else []
            return [*tasks, *configs.put_target(name, target)]

        self._change(decide)

    def _request_restart(self, request: RestartRequest) -> None:
        def decide(state: ConfigState) -> Changes:
            self._find_config(state, request.connector)
            return configs.put_restart(request)

        self._change(decide)

    def _check(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration with its name. BadRequest if a connector cannot work with it."""
        complete = {**config, "name": name}
        try:
            self._plugins.check(complete)
        except BadConfig as error:
            raise BadRequest(str(error)) from None
        return complete

    def _find_config(self, state: ConfigState, name: str, missing: str | None = None) -> dict[str, str]:
        """NotFound, with Kafka Connect's words for what was asked, if there is no such connector."""
        config = state.connectors.get(name)
        if config is None:
            raise NotFound(missing or f"Connector {name} not found")
        return config

    def _require_tracking(self) -> None:
        if not self._tracking.is_enabled:
            raise Forbidden("Topic tracking is disabled (topic.tracking.enable=false)")

    def _require_stopped(self, name: str) -> dict[str, str]:
        """A connector whose run has ended, so that nothing writes offsets besides us."""
        self._worker.configs.refresh()
        config = self._find_config(self._state, name)
        stored = self._worker.statuses.state.connectors.get(name)
        is_stopped = stored is not None and stored.state is State.STOPPED
        if self._state.find_target(name) is not TargetState.STOPPED or not is_stopped:
            raise BadRequest(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the"
                f" specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
            )
        return config


def _describe_change(what: str, *, is_complete: bool) -> str:
    """Kafka Connect's words."""
    if is_complete:
        return f"The offsets for this connector have been {what} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {what} successfully. However, if this"
        f" connector manages offsets externally, they will need to be manually {what} in the system that the connector"
        " uses."
    )


def _describe(status: StoredStatus) -> ConnectorState:
    return ConnectorState(status.state, status.worker_id, status.trace, status.version)


def _describe_task(number: int, status: StoredStatus) -> TaskStatus:
    return TaskStatus(status.state, status.worker_id, status.trace, status.version, number)
