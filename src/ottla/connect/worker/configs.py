"""Configurations of connectors in the config topic, in Kafka Connect's form. The topic has one partition.

    connector-<name>            {"properties": {...}}                             null: deleted
    target-state-<name>         {"state": "PAUSED", "state.v2": "STOPPED"}        absent: started
    task-<name>-<n>             {"properties": {...}}                             counts once its commit follows
    commit-<name>               {"tasks": 2}
    restart-connector-<name>    {"include-tasks": true, "only-failed": false}     counts only for who reads it live
    logger-cluster-<name>       {"level": "DEBUG"}

Kafka Connect also writes `tasks-fencing-` and `session-key`, which a reader here ignores: every run fences its
predecessors, and workers send each other no requests.

All workers write under one transactional id. Whoever wants to change something takes the id over, which aborts what
another worker has under way, reads to the end, decides about the change, and commits. A worker whose id was taken in
between is fenced before its change is committed, and begins again. So every change is decided on the state that it is
applied to, and a worker that was paused for an hour cannot write what it decided before.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Protocol

from ottla.client.client import Client
from ottla.client.sending import Sender
from ottla.client.transactions import end_transaction, init_producer
from ottla.connect.worker.runs import TargetState
from ottla.connect.worker.topics import TopicReader, encode_records
from ottla.errors import ErrorCode, KafkaError

CONNECTOR: Final = "connector-"
TARGET_STATE: Final = "target-state-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
RESTART: Final = "restart-connector-"
LOGGER: Final = "logger-cluster-"

FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""What a producer is told whose transactional id another one has taken over."""

_TASK_KEY: Final = re.compile(r"task-(.+)-(\d+)", re.DOTALL)

Changes = Sequence[tuple[str, Any]]
"""Keys and values of the config topic."""


@dataclass(frozen=True)
class RestartRequest:
    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass
class ConfigState:
    """What the config topic says, as far as it has been read."""

    connectors: dict[str, dict[str, str]] = field(default_factory=dict)
    tasks: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """The committed configurations of each connector's tasks."""
    restarts: list[RestartRequest] = field(default_factory=list)
    """In the order in which they came."""
    loggers: dict[str, str] = field(default_factory=dict)
    incarnations: dict[str, int] = field(default_factory=dict)
    """How often a connector of the name was created: one that was deleted and created again is another one."""
    _targets: dict[str, TargetState] = field(default_factory=dict)
    _new_tasks: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)
    """Read, and not yet followed by a commit."""

    def take_restarts(self) -> list[RestartRequest]:
        taken, self.restarts = self.restarts, []
        return taken

    def find_target(self, connector: str) -> TargetState:
        return self._targets.get(connector, TargetState.STARTED)

    def apply(self, key: str, value: Any) -> None:
        if value is not None and not isinstance(value, dict):
            return
        if key.startswith(CONNECTOR):
            self._apply_connector(key.removeprefix(CONNECTOR), value)
        elif key.startswith(TARGET_STATE):
            self._apply_target(key.removeprefix(TARGET_STATE), value)
        elif key.startswith(RESTART) and value is not None:
            flags = bool(value.get("include-tasks")), bool(value.get("only-failed"))
            self.restarts.append(RestartRequest(key.removeprefix(RESTART), *flags))
        elif key.startswith(LOGGER) and value is not None:
            if isinstance(value.get("level"), str):
                self.loggers[key.removeprefix(LOGGER)] = value["level"]
        elif key.startswith(COMMIT) and value is not None:
            self._apply_commit(key.removeprefix(COMMIT), value.get("tasks"))
        elif (found := _TASK_KEY.fullmatch(key)) is not None and value is not None:
            self._new_tasks.setdefault(found[1], {})[int(found[2])] = _read_properties(value)

    def _apply_connector(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self.connectors.pop(name, None)
            self.tasks.pop(name, None)
            self._targets.pop(name, None)
            self._new_tasks.pop(name, None)
        elif isinstance(value.get("properties"), dict):
            if name not in self.connectors:
                self.incarnations[name] = self.incarnations.get(name, 0) + 1
            self.connectors[name] = _read_properties(value)

    def _apply_target(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self._targets.pop(name, None)
            return
        target = TargetState.__members__.get(str(value.get("state.v2") or value.get("state")))
        if target is not None:
            self._targets[name] = target

    def _apply_commit(self, name: str, count: Any) -> None:
        """Compaction may have removed some of the tasks; the connector's own configuration stands in for them."""
        if isinstance(count, int):
            found = self._new_tasks.pop(name, {})
            old = dict(enumerate(self.tasks.get(name, [])))
            instead = self.connectors.get(name, {})
            self.tasks[name] = [found.get(number, old.get(number, instead)) for number in range(count)]


def _read_properties(value: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(each) for key, each in value.get("properties", {}).items() if each is not None}


def put_connector(name: str, config: Mapping[str, str]) -> Changes:
    return [(CONNECTOR + name, {"properties": dict(config)})]


def put_target(name: str, target: TargetState) -> Changes:
    """Workers of Kafka before 3.5 know no STOPPED and read `state` alone: they pause such a connector."""
    old = TargetState.PAUSED if target is TargetState.STOPPED else target
    return [(TARGET_STATE + name, {"state": old.value, "state.v2": target.value})]


def put_tasks(name: str, configs: Sequence[Mapping[str, str]]) -> Changes:
    tasks = [(f"{TASK}{name}-{number}", {"properties": dict(config)}) for number, config in enumerate(configs)]
    return [*tasks, (COMMIT + name, {"tasks": len(configs)})]


def delete_connector(name: str) -> Changes:
    return [(CONNECTOR + name, None), (TARGET_STATE + name, None)]


def put_restart(request: RestartRequest) -> Changes:
    flags = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
    return [(RESTART + request.connector, flags)]


def put_logger(name: str, level: str) -> Changes:
    return [(LOGGER + name, {"level": level})]


class ConfigStore(Protocol):
    """Where configurations are kept: a topic, or the memory of a standalone worker. For several threads."""

    @property
    def state(self) -> ConfigState: ...

    def refresh(self) -> None:
        """Read what others have changed."""

    def change(self, decide: Callable[[ConfigState], Changes]) -> None:
        """Write what `decide` returns for the latest state. It is called again if another worker was quicker.

        What it raises is passed on; then nothing is written, and neither if it returns nothing.
        """

    def close(self) -> None: ...


class ConfigTopic:
    def __init__(self, client: Client, topic: str, transactional_id: str) -> None:
        self.state = ConfigState()
        self._client = client
        self._topic = topic
        self._transactional_id = transactional_id
        self._reader = TopicReader(client, [topic])
        self._lock = Lock()

    def refresh(self) -> None:
        with self._lock:
            self._read()

    def change(self, decide: Callable[[ConfigState], Changes]) -> None:
        backoff = self._client.start_backoff()
        while True:
            try:
                with self._lock:
                    self._try_to_change(decide)
                return
            except KafkaError as error:
                if error.code not in FENCED or not backoff.pause():
                    raise

    def close(self) -> None:
        with self._lock:
            self._client.close()

    def _read(self) -> None:
        for record in self._reader.read():
            self.state.apply(record.key, record.value)

    def _try_to_change(self, decide: Callable[[ConfigState], Changes]) -> None:
        producer = init_producer(self._client, self._transactional_id)
        self._read()
        changes = decide(self.state)
        if changes:
            sender = Sender(self._client, producer)
            sender.send_all(encode_records(self._client, self._topic, changes))
            sender.flush()
            end_transaction(self._client, producer, commit=True)
            self._read()
