"""What a worker can be asked for. The REST server is written against `Herder`; both kinds of worker fulfil it.

The methods wait for their result, for seconds if the Kafka cluster is slow, so an asynchronous server calls them in
threads; they may be called from several at once. Plug-ins and the validation of configurations for their own sake are
not the herder's: the server asks the plug-ins itself.

A group of workers has no leader for changes. Any worker that is asked makes the change: it takes over the transactional
id `connect-cluster-<group.id>`, reads the config topic to its end, decides, and writes in a transaction. If another
worker changes something in between, the write is fenced and the worker decides again. Requests therefore need not be
forwarded, nor wait for a rebalance; `?forward=` may be accepted and ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ottla.connect.connector import Connector
from ottla.connect.worker.runs import ConnectorSpec, State, TargetState

ConnectorType = Literal["source", "sink", "unknown"]


class HerderError(Exception):
    """A request that cannot be fulfilled. `status` is the HTTP status that Kafka Connect answers with."""

    status = 500


class BadRequest(HerderError):
    status = 400


class Forbidden(HerderError):
    """The worker's settings do not allow it."""

    status = 403


class NotFound(HerderError):
    status = 404


class AlreadyExists(HerderError):
    status = 409


@dataclass(frozen=True)
class TaskId:
    connector: str
    task: int


@dataclass(frozen=True)
class ConnectorInfo:
    name: str
    config: Mapping[str, str]
    tasks: Sequence[TaskId]
    type: ConnectorType


@dataclass(frozen=True)
class TaskInfo:
    id: TaskId
    config: Mapping[str, str]


@dataclass(frozen=True)
class ConnectorState:
    state: State
    worker_id: str
    """host:port of the worker's REST server."""
    trace: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class TaskStatus(ConnectorState):
    id: int = 0


@dataclass(frozen=True)
class ConnectorStatus:
    name: str
    connector: ConnectorState
    tasks: Sequence[TaskStatus]
    type: ConnectorType


@dataclass(frozen=True)
class ConnectorOffset:
    """For a sink, the partition is {"kafka_topic", "kafka_partition"} and the offset {"kafka_offset"}."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None
    """None in a change: the offset is removed."""


@dataclass(frozen=True)
class LoggerLevel:
    level: str
    last_modified: int | None
    """Milliseconds since 1970; None if it was never changed."""


@dataclass(frozen=True)
class ClusterInfo:
    version: str
    commit: str
    kafka_cluster_id: str


@dataclass(frozen=True)
class Health:
    """`GET /health`: 200 if healthy, 503 while starting, 500 if unhealthy."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


@dataclass(frozen=True)
class ConnectorMetrics:
    """Of a connector that runs on this worker."""

    type: ConnectorType
    state: State
    tasks: Sequence[Mapping[str, float]]
    """What each task has done, by Kafka's names of metrics; and `lag`, the records that a sink has not read."""


class Herder(Protocol):
    """Each method raises NotFound if the connector or task does not exist, and KafkaError or Unreachable if the Kafka
    cluster does not answer. A configuration that is not valid raises BadRequest."""

    def list_connectors(self) -> Sequence[str]: ...

    def get_connector(self, name: str) -> ConnectorInfo: ...

    def create_connector(
        self, name: str, config: Mapping[str, str], initial_state: TargetState = TargetState.STARTED
    ) -> ConnectorInfo:
        """Raises AlreadyExists if there is one of the name."""

    def put_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorInfo]:
        """Create or reconfigure a connector. The first value is whether it was created."""

    def patch_config(self, name: str, changes: Mapping[str, str | None]) -> ConnectorInfo:
        """Change some settings; None removes one."""

    def delete_connector(self, name: str) -> None: ...

    def get_status(self, name: str) -> ConnectorStatus: ...

    def list_tasks(self, name: str) -> Sequence[TaskInfo]: ...

    def get_task_status(self, task: TaskId) -> TaskStatus: ...

    def pause(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...

    def stop(self, name: str) -> None:
        """Stop the connector and forget its tasks; the configuration and the offsets stay."""

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
        """Returns the status with RESTARTING for what will be restarted; the restart itself is not waited for."""

    def restart_task(self, task: TaskId) -> None: ...

    def get_topics(self, name: str) -> Sequence[str]: ...

    def reset_topics(self, name: str) -> None: ...

    def get_offsets(self, name: str) -> Sequence[ConnectorOffset]: ...

    def alter_offsets(self, name: str, offsets: Sequence[ConnectorOffset]) -> str:
        """Returns the message for the user. Raises BadRequest unless the connector is stopped."""

    def reset_offsets(self, name: str) -> str:
        """Returns the message for the user. Raises BadRequest unless the connector is stopped."""

    def list_loggers(self) -> Mapping[str, LoggerLevel]: ...

    def get_logger(self, name: str) -> LoggerLevel: ...

    def set_logger(self, name: str, level: str, *, whole_cluster: bool) -> Sequence[str]:
        """The names of the loggers that were changed, on this worker. Raises BadRequest for an unknown level."""

    def get_cluster_info(self) -> ClusterInfo: ...

    def get_health(self) -> Health: ...

    def list_metrics(self) -> Mapping[str, ConnectorMetrics]:
        """Of the connectors that run on this worker."""


class Plugins(Protocol):
    """What a herder asks the connectors that are installed."""

    def check(self, config: Mapping[str, str]) -> None:
        """Raises BadConfig, with every error in its message, if a connector cannot work with the configuration."""

    def find_type(self, config: Mapping[str, str]) -> ConnectorType: ...

    def find_version(self, config: Mapping[str, str]) -> str | None: ...

    def make_connector(self, spec: ConnectorSpec) -> Connector:
        """The connector, not started. Raises BadConfig if its configuration is not valid any more."""
