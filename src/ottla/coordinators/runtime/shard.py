"""One partition that this broker coordinates: its machine, and everyone who waits for it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ottla.coordinators.machine import NOBODY, Machine, Reply, Ticket
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)
T = TypeVar("T")

LATER: Final = object()
"""Instead of a reply: it will come."""


@dataclass(slots=True)
class Unsettled:
    """Replies that wait until the log is committed up to an offset."""

    operation: str
    offset: int
    deadline_ms: int
    replies: Sequence[Reply]
    errands: Sequence[Any]


def ignore(result: object) -> None:
    """Nothing is done with it."""


class Shard(Generic[M]):
    def __init__(self, partition: Partition, machine: M, run_errand: Callable[["Shard[M]", Any], None]) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.machine = machine
        self.is_loaded = False
        self.is_dropped = False
        self.end = 0
        """After the last record that the machine knows."""
        # uvloop's handle of a timer that is due at once does not know when: so that is kept here.
        self.timer: asyncio.Handle | None = None
        self.timer_due_s = 0.0
        self.watcher: Callable[[], None] | None = None
        """Told whenever the high watermark moves."""
        self.waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self._unsettled: deque[Unsettled] = deque()
        self._impatient: deque[Unsettled] = deque()
        """Those of the unsettled whose deadline has not come: the last of them."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._run_errand = run_errand

    @property
    def is_committed(self) -> bool:
        """Whether the high watermark has passed everything that the machine knows."""
        return self.partition.high_watermark.value >= self.end

    @property
    def deadline_ms(self) -> int | None:
        """When the first of those who wait for the log has waited too long."""
        return self._impatient[0].deadline_ms if self._impatient else None

    # Replies

    def wait(self, ticket: Ticket) -> asyncio.Future[Any]:
        future = self.waiting[ticket] = asyncio.get_running_loop().create_future()
        return future

    def hand_out(self, replies: Sequence[Reply], errands: Sequence[Any] = (), own_ticket: Ticket = NOBODY) -> Any:
        """Answer those who wait; the reply to `own_ticket`, who need not wait, is handed back, or LATER."""
        own: Any = LATER
        for ticket, response in replies:
            if ticket == own_ticket:
                own = response
                continue
            future = self.waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(response)
        for errand in errands:
            self._run_errand(self, errand)
        return own

    def postpone(self, operation: str, replies: Sequence[Reply], errands: Sequence[Any], deadline_ms: int) -> None:
        """Keep replies and errands back until everything that the machine knows now is committed."""
        unsettled = Unsettled(operation, self.end, deadline_ms, replies, errands)
        self._unsettled.append(unsettled)
        self._impatient.append(unsettled)

    def settle(self) -> None:
        """The high watermark moved."""
        committed = self.partition.high_watermark.value
        while self._unsettled and self._unsettled[0].offset <= committed:
            settled = self._unsettled.popleft()
            if self._impatient and self._impatient[0] is settled:
                self._impatient.popleft()
            self.hand_out(settled.replies, settled.errands)

    def give_up(self, now_ms: int) -> None:
        """What was not committed in time may be committed later, or not at all: who asked has to ask again."""
        late = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's log was not committed in time")
        while self._impatient and self._impatient[0].deadline_ms <= now_ms:
            unsettled = self._impatient.popleft()
            logger.warning("%s: %s was not committed in time", self.partition, unsettled.operation)
            self.hand_out([Reply(ticket, late) for ticket, _ in unsettled.replies])
            unsettled.replies = ()

    # Work

    def start(self, work: Coroutine[Any, Any, T], then: Callable[[T], None] = ignore) -> None:
        """Work that ends with the shard, and what is done with its result."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(partial(self._on_task_done, then))

    def _on_task_done(self, then: Callable[[T], None], task: asyncio.Task[T]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        if task.exception() is not None:
            logger.error("%s: work of the coordinator failed", self.partition, exc_info=task.exception())
        else:
            then(task.result())

    def drop(self, error: KafkaError) -> None:
        """The end: everyone who waits is told."""
        self.is_dropped = True
        self.is_loaded = False
        if self.watcher is not None:
            self.partition.high_watermark.unwatch(self.watcher)
        if self.timer is not None:
            self.timer.cancel()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        self._unsettled.clear()
        self._impatient.clear()
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(error)
