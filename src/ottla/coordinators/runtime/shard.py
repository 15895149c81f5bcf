"""One partition that this broker coordinates: its machine, and the requests that wait for it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ottla.coordinators.machine import NOBODY, Machine, Outcome, Reply, Ticket, Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)
T = TypeVar("T")

LATER: Final = object()
"""Returned instead of a reply that is not there yet."""


@dataclass(slots=True)
class Unsettled:
    """Replies and errands of one turn that wait until the log is committed up to an offset."""

    operation: str
    offset: int
    deadline_ms: int
    replies: Sequence[Reply]
    errands: Sequence[Any]


def ignore(result: object) -> None:
    """The default for work whose result nobody needs."""


class Shard(Generic[M]):
    def __init__(self, partition: Partition, machine: M, run_errand: Callable[["Shard[M]", Any], None]) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.machine = machine
        self.is_loaded = False
        self.is_dropped = False
        self.end = 0
        """The offset after the last record that the machine has replayed."""
        # The due time is kept here, because uvloop's handle of a timer that is due at once does not have it.
        self.timer: asyncio.Handle | None = None
        self.timer_due_s = 0.0
        self.watcher: Callable[[], None] | None = None
        """Called whenever the high watermark moves."""
        self.waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self.delayed: deque[tuple[str, Callable[[M, Turn], Outcome]]] = deque()
        """Turns that no client waits for and that are put off until enough replicas are in sync."""
        self._unsettled: deque[Unsettled] = deque()
        self._impatient: deque[Unsettled] = deque()
        """The unsettled turns whose deadline has not passed: a tail of `_unsettled`."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._run_errand = run_errand

    @property
    def is_committed(self) -> bool:
        """Whether the high watermark has passed every record that the machine has replayed."""
        return self.partition.high_watermark.value >= self.end

    @property
    def deadline_ms(self) -> int | None:
        """When the oldest unsettled turn has waited too long."""
        return self._impatient[0].deadline_ms if self._impatient else None

    # Replies

    def wait(self, ticket: Ticket) -> asyncio.Future[Any]:
        future = self.waiting[ticket] = asyncio.get_running_loop().create_future()
        return future

    def hand_out(self, replies: Sequence[Reply], errands: Sequence[Any] = (), own_ticket: Ticket = NOBODY) -> Any:
        """Send replies and start errands. The reply to `own_ticket` is returned instead; LATER if there is none."""
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
        """Keep replies and errands back until every record that the machine has replayed is committed."""
        unsettled = Unsettled(operation, self.end, deadline_ms, replies, errands)
        self._unsettled.append(unsettled)
        self._impatient.append(unsettled)

    def settle(self) -> None:
        """Send what the high watermark has passed."""
        committed = self.partition.high_watermark.value
        while self._unsettled and self._unsettled[0].offset <= committed:
            settled = self._unsettled.popleft()
            if self._impatient and self._impatient[0] is settled:
                self._impatient.popleft()
            self.hand_out(settled.replies, settled.errands)

    def give_up(self, now_ms: int) -> None:
        """Fail requests whose records were not committed in time. The records may be committed later, or never."""
        late = KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "the records were not committed within offsets.commit.timeout.ms"
        )
        while self._impatient and self._impatient[0].deadline_ms <= now_ms:
            unsettled = self._impatient.popleft()
            logger.warning("%s: %s was not committed in time", self.partition, unsettled.operation)
            self.hand_out([Reply(ticket, late) for ticket, _ in unsettled.replies])
            unsettled.replies = ()

    # Work

    def start(self, work: Coroutine[Any, Any, T], then: Callable[[T], None] = ignore) -> None:
        """Run work that is cancelled with the shard, and pass its result on."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(partial(self._on_task_done, then))

    def _on_task_done(self, then: Callable[[T], None], task: asyncio.Task[T]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        if task.exception() is not None:
            logger.error("%s: a background task of the coordinator failed", self.partition, exc_info=task.exception())
        else:
            then(task.result())

    def drop(self, error: KafkaError) -> None:
        """Stop all work of this shard and fail every request that waits, with this error."""
        self.is_dropped = True
        self.is_loaded = False
        if self.watcher is not None:
            self.partition.high_watermark.unwatch(self.watcher)
        if self.timer is not None:
            self.timer.cancel()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        self.delayed.clear()
        self._unsettled.clear()
        self._impatient.clear()
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(error)
