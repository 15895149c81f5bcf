"""The tasks of a run as its driver knows them: producers, failures in a row, and what a user is told about them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.client.transactions import ProducerIdentity
from ottla.connect.running.work import FAILED, Failure
from ottla.connect.worker.runs import State, TaskState

RETRY_PAUSES_S: Final = (0.1, 0.5, 2.0, 10.0)
"""How long a task waits after its first failures in a row, and after each further one."""


@dataclass
class TaskSlot:
    """One task. It has no producer before it was started, and after a failure: then it is not known what its last
    batch has done, so the task is started anew."""

    number: int
    producer: ProducerIdentity | None = None
    attempts: int = 0
    retry_at_s: float = 0.0
    failure: Failure | None = None
    """The last batch failed."""
    counts: Counter[str] = field(default_factory=Counter)
    """By Kafka's names of metrics."""

    @property
    def is_failed(self) -> bool:
        """Whether the task waits for somebody to restart it."""
        return self.failure is not None and self.failure.kind == FAILED

    @property
    def state(self) -> TaskState:
        if self.failure is None:
            return TaskState(State.RUNNING)
        return TaskState(State.FAILED if self.is_failed else State.RUNNING, self.failure.trace)

    def note_success(self, producer: ProducerIdentity) -> None:
        self.producer = producer
        self.attempts = 0
        self.failure = None

    def note_failure(self, failure: Failure, now_s: float) -> None:
        self.producer = None
        self.failure = failure
        self.retry_at_s = now_s + RETRY_PAUSES_S[min(self.attempts, len(RETRY_PAUSES_S) - 1)]
        self.attempts += 1


class TaskSlots:
    """All tasks of a run. A key (of a source partition or a topic partition) stays with the task that it was first
    given to, which is the one with the fewest."""

    def __init__(self, tasks_max: int) -> None:
        self._tasks_max = tasks_max
        self._slots: list[TaskSlot] = [TaskSlot(0)]
        self._keys: dict[str, int] = {}
        self._loads: list[int] = [0]

    def __iter__(self) -> Iterator[TaskSlot]:
        return iter(self._slots)

    def find(self, key: str) -> TaskSlot:
        number = self._keys.get(key)
        if number is None:
            number = min(range(len(self._loads)), key=self._loads.__getitem__)
            if self._loads[number] and len(self._loads) < self._tasks_max:
                number = len(self._loads)
                self._loads.append(0)
                self._slots.append(TaskSlot(number))
            self._loads[number] += 1
            self._keys[key] = number
        return self._slots[number]

    def get_number(self, key: str) -> int | None:
        """Of the task that has the key. Callable from any thread."""
        return self._keys.get(key)

    def forget(self, key: str) -> None:
        """The key will not come again."""
        number = self._keys.pop(key, None)
        if number is not None:
            self._loads[number] -= 1
