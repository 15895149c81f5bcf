"""What the loops of sources and sinks share: tasks are started, orders run as a Spark job, reports taken."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger

from ottla.client.transactions import ProducerIdentity
from ottla.connect.running.ownership import Ownership
from ottla.connect.running.slots import TaskSlot, TaskSlots
from ottla.connect.running.work import RETRY, Failure, Order, Report, order_fields, to_report
from ottla.spark.jobs import JobFailed, RddJobs

log = getLogger(__name__)


@dataclass(frozen=True)
class LoopContext:
    """What a run gives to its loop."""

    name: str
    tasks_max: int
    make_jobs: Callable[[], RddJobs]
    """Called for the first batch: it may wait until Spark has started."""
    ownership: Ownership
    redact: Callable[[str], str]
    """A text without the secrets of the connector."""
    announce: Callable[[], None]
    """Called when the tasks of the next batch are known, and before it runs."""


class Loop(ABC):
    """Used by the run's thread."""

    def __init__(self, context: LoopContext) -> None:
        self.context = context
        self.slots = TaskSlots(context.tasks_max)
        self.topics: set[str] = set()
        """Topics that records were written to or read from."""
        self.is_busy = False
        """Whether a batch runs. Readable from any thread."""
        self._is_started = False
        self._jobs: RddJobs | None = None

    @abstractmethod
    def start(self) -> None:
        """Shut out earlier runs, then find out where to go on."""

    @abstractmethod
    def plan(self) -> list[Order]:
        """What is to be done now. No task has two orders."""

    @abstractmethod
    def take(self, report: Report) -> None:
        """Remember what a task has committed."""

    @abstractmethod
    def finish_round(self) -> None:
        """Tell the connector what was committed."""

    @abstractmethod
    def recover(self, slots: Iterable[TaskSlot]) -> None:
        """Find out what tasks that have just been fenced had committed before."""

    def find_lags(self) -> Mapping[int, Sequence[int]]:
        """How many records each task is behind in its topic partitions. Callable from any thread."""
        return {}

    @property
    def counts(self) -> Counter[str]:
        """Of all tasks, by Kafka's names of metrics. Callable from any thread."""
        return sum((Counter(dict(slot.counts)) for slot in [*self.slots]), Counter())

    def list_metrics(self) -> list[dict[str, float]]:
        """The counts of each task and its lag. Callable from any thread."""
        lags = self.find_lags()
        found = []
        for slot in [*self.slots]:
            behind = lags.get(slot.number)
            lag = {} if behind is None else {"lag": sum(behind), "sink-record-lag-max": max(behind, default=0)}
            found.append({**slot.counts, **lag})
        return found

    def is_done(self) -> bool:
        return False

    def run_round(self) -> bool:
        """Start tasks that have failed and may be tried again, then run one batch. False if there was nothing to do.

        Raises what the connector raises, and KafkaError or Unreachable if brokers do not answer the driver.
        """
        if not self._is_started:
            self.start()
            self._is_started = True
        self._restart_tasks()
        orders = self.plan()
        if not orders:
            return False
        self.context.announce()
        reports = self._run(orders)
        has_committed = False
        for report in reports:
            has_committed = self._take(report) or has_committed
        if has_committed:
            self.finish_round()
        return True

    def get_producer(self, slot: TaskSlot) -> ProducerIdentity:
        """A task that runs for the first time is started."""
        if slot.producer is None:
            slot.producer = self.context.ownership.start_task(slot.number)
        return slot.producer

    def is_ready(self, slot: TaskSlot) -> bool:
        """False while a task waits after a failure."""
        return slot.failure is None

    def _restart_tasks(self) -> None:
        now_s = time.monotonic()
        due = [
            slot for slot in self.slots if slot.failure is not None and not slot.is_failed and slot.retry_at_s <= now_s
        ]
        if not due:
            return
        for slot in due:
            slot.producer = self.context.ownership.start_task(slot.number)
        self.recover(due)
        for slot in due:
            slot.failure = None

    def _run(self, orders: Sequence[Order]) -> list[Report]:
        if self._jobs is None:
            self._jobs = self.context.make_jobs()
        self.is_busy = True
        try:
            return [to_report(fields) for fields in self._jobs.run([order_fields(each) for each in orders])]
        except JobFailed as error:
            failure = Failure(RETRY, f"the Spark job has failed: {error}")
            return [Report(each.task, each.producer, failure=failure) for each in orders]
        finally:
            self.is_busy = False

    def _take(self, report: Report) -> bool:
        """Whether something was committed."""
        slot = next(slot for slot in self.slots if slot.number == report.task)
        slot.counts.update(report.counts)
        self.topics.update(report.topics)
        for line in report.log:
            log.error("connector %s, task %d: %s", self.context.name, report.task, self.context.redact(line))
        self.take(report)
        if report.failure is None:
            if slot.attempts:
                log.info("connector %s, task %d: works again", self.context.name, slot.number)
            slot.note_success(report.producer)
        else:
            failure = Failure(report.failure.kind, self.context.redact(report.failure.trace))
            slot.note_failure(failure, time.monotonic())
            slot.counts["total-retries"] += not slot.is_failed
            level = log.error if slot.is_failed else log.warning
            level("connector %s, task %d: %s", self.context.name, slot.number, failure.message)
        return bool(report.offsets or report.positions)
