"""States of connectors and tasks in the status topic, in Kafka Connect's form.

    status-connector-<name>               {"state", "trace", "worker_id", "generation", "version"}
    status-task-<name>-<n>                the same
    status-topic-<topic>:connector-<name> {"topic": {"name", "connector", "task", "discoverTimestamp"}}

null deletes. A worker does not overwrite what another one wrote in a later generation of the group: it has lost the
connector and will soon learn of it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Protocol, TypeVar

from ottla.client.client import Client
from ottla.client.sending import Sender
from ottla.connect.worker.runs import State
from ottla.connect.worker.topics import TopicReader, encode_records

K = TypeVar("K")

CONNECTOR: Final = "status-connector-"
TASK: Final = "status-task-"
TOPIC: Final = "status-topic-"

_TASK_KEY: Final = re.compile(r"status-task-(.+)-(\d+)", re.DOTALL)
_TOPIC_KEY: Final = re.compile(r"status-topic-(.+?):connector-(.+)", re.DOTALL)


@dataclass(frozen=True)
class StoredStatus:
    state: State
    trace: str | None
    worker_id: str
    generation: int
    version: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "trace": self.trace,
            "worker_id": self.worker_id,
            "generation": self.generation,
            "version": self.version,
        }


@dataclass
class StatusState:
    """What the status topic says, as far as it has been read."""

    connectors: dict[str, StoredStatus] = field(default_factory=dict)
    tasks: dict[str, dict[int, StoredStatus]] = field(default_factory=dict)
    topics: dict[str, set[str]] = field(default_factory=dict)
    """Topics in use, by connector."""

    def apply(self, key: str, value: Any) -> None:
        if key.startswith(CONNECTOR):
            _store(self.connectors, key.removeprefix(CONNECTOR), _read_status(value))
        elif (task := _TASK_KEY.fullmatch(key)) is not None:
            _store(self.tasks.setdefault(task[1], {}), int(task[2]), _read_status(value))
        elif (topic := _TOPIC_KEY.fullmatch(key)) is not None:
            in_use = self.topics.setdefault(topic[2], set())
            if value is None:
                in_use.discard(topic[1])
            else:
                in_use.add(topic[1])

    def may_write(self, key: str, worker_id: str, generation: int) -> bool:
        """Whether a worker's status is not older than what is stored."""
        stored: StoredStatus | None = None
        if key.startswith(CONNECTOR):
            stored = self.connectors.get(key.removeprefix(CONNECTOR))
        elif (task := _TASK_KEY.fullmatch(key)) is not None:
            stored = self.tasks.get(task[1], {}).get(int(task[2]))
        return stored is None or stored.worker_id == worker_id or stored.generation <= generation


def _store(table: dict[K, StoredStatus], key: K, status: StoredStatus | None) -> None:
    if status is None:
        table.pop(key, None)
    else:
        table[key] = status


def _read_status(value: Any) -> StoredStatus | None:
    """None for a deleted status and for a state that is not known here, such as DESTROYED."""
    if not isinstance(value, dict) or value.get("state") not in State.__members__:
        return None
    return StoredStatus(
        State[value["state"]],
        value.get("trace"),
        str(value.get("worker_id")),
        int(value.get("generation") or 0),
        value.get("version"),
    )


class StatusStore(Protocol):
    """Where statuses are kept: a topic, or the memory of a standalone worker. For several threads."""

    @property
    def state(self) -> StatusState: ...

    def refresh(self) -> None:
        """Read what others have written."""

    def write(self, records: Sequence[tuple[str, Mapping[str, Any] | None]]) -> None:
        """Write statuses by their keys; None deletes. They are in `state` afterwards."""

    def close(self) -> None: ...


class StatusTopic:
    def __init__(self, client: Client, topic: str) -> None:
        self.state = StatusState()
        self._client = client
        self._topic = topic
        self._reader = TopicReader(client, [topic])
        self._lock = Lock()

    def refresh(self) -> None:
        with self._lock:
            self._read()

    def write(self, records: Sequence[tuple[str, Mapping[str, Any] | None]]) -> None:
        with self._lock:
            sender = Sender(self._client)
            sender.send_all(encode_records(self._client, self._topic, records))
            sender.flush()
            self._read()

    def close(self) -> None:
        with self._lock:
            self._client.close()

    def _read(self) -> None:
        for record in self._reader.read():
            self.state.apply(record.key, record.value)


def connector_key(name: str) -> str:
    return CONNECTOR + name


def task_key(name: str, number: int) -> str:
    return f"{TASK}{name}-{number}"


def topic_key(name: str, topic: str) -> str:
    return f"{TOPIC}{topic}:connector-{name}"


def topic_status(name: str, topic: str, now_ms: int) -> dict[str, Any]:
    return {"topic": {"name": topic, "connector": name, "task": 0, "discoverTimestamp": now_ms}}
