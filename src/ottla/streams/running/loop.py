"""The loop of one subtopology, in a thread of the driver: plan a batch, run it as a Spark job, take the reports.

A task that fails is started anew: its transactional id is fenced and its committed offsets are read again, so nothing
has to be known about what the failed attempt did. The other tasks go on meanwhile. A broker or a state server that does
not answer is waited for, until task.timeout.ms has passed without success.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.backoff import now_ms
from ottla.client.client import LATEST, READ_COMMITTED, Client, UnknownTopic
from ottla.client.connection import NotAuthenticated, Unreachable
from ottla.client.transactions import ProducerIdentity, init_producer
from ottla.errors import KafkaError
from ottla.spark.jobs import JobFailed
from ottla.streams.errors import FencedApp, IncompatibleTopology, StreamsError
from ottla.streams.options import FAIL, AppOptions
from ottla.streams.planning.plan import PARCELS, SubtopologyPlan
from ottla.streams.running.continuity import check_same_topics, commit_added
from ottla.streams.running.explaining import explain_failure
from ottla.streams.running.following import Following, FollowingJobs
from ottla.streams.running.hearing import Hearing
from ottla.streams.running.idleness import Idleness
from ottla.streams.running.internal_topics import purge
from ottla.streams.running.jobs import JobRunner
from ottla.streams.running.positions import read_positions
from ottla.streams.running.progress import RESTORING, RUNNING, WAITING, SubtopologyProgress
from ottla.streams.running.purging import Purging
from ottla.streams.running.settings import task_timeout_s, transaction_timeout_ms
from ottla.streams.running.sifting import sift
from ottla.streams.running.state_servers import StateServers
from ottla.streams.running.transactions import end_batch
from ottla.streams.running.troubles import WHOLE, Troubles
from ottla.streams.running.work import (
    BROKEN,
    FENCED,
    NO_TIME,
    REFUSED,
    STILL_RESTORING,
    Failure,
    Order,
    Position,
    Report,
    SourceRange,
    StateVersion,
)
from ottla.streams.state.client import StateUnavailable
from ottla.topic_partition import TopicPartition

IDLE_PAUSES_S: Final = (0.01, 0.02, 0.05, 0.1)
"""How long a subtopology without work waits before it asks for new records, the first times and from then on."""
COMMIT_AGAIN_SECONDS: Final = 3600.0
"""A task that has nothing to do commits its positions so often nevertheless: a broker removes those of a group without
members one by one, offsets.retention.minutes after each was last committed."""
FIRST_COMMIT_SECONDS: Final = 60.0
"""The same after a start, when it is not known how old the committed offsets are."""
LOOK_SECONDS: Final = 5.0
"""How often a subtopology looks whether another copy has taken over, whether its sources have got partitions, and
whether its topics are still the same."""
PURGE_SECONDS: Final = 30.0
"""repartition.purge.interval.ms of Kafka Streams."""


@dataclass
class _Task:
    """What the driver knows about the task of one partition."""

    partition: int
    producer: ProducerIdentity
    positions: list[Position]
    changelog_ends: dict[str, int]
    """Up to which offset each store's changelog must be applied for the next batch."""
    committed_s: float
    """When its positions were last committed."""


@dataclass(frozen=True)
class LoopContext:
    """What the loops of all subtopologies share."""

    options: AppOptions
    stop: threading.Event
    state: StateServers
    idleness: Idleness
    hearing: Hearing
    is_owner: Callable[[Client], bool]
    """Whether no other copy of the app has registered since."""
    purging: Purging
    following: Following
    has_stores: bool
    """Whether any subtopology of the app has state."""
    topic_ids: Mapping[str, str]
    """The ids of sources and changelogs when the app was started."""


class SubtopologyLoop:
    def __init__(
        self,
        context: LoopContext,
        plan: SubtopologyPlan,
        partitions: int,
        jobs: JobRunner | FollowingJobs,
        client: Client,
        progress: SubtopologyProgress,
    ) -> None:
        self._context = context
        self._plan = plan
        self._partitions = range(partitions)
        self._jobs = jobs
        self._client = client
        self._progress = progress
        self._tasks: dict[int, _Task] = {}
        self._troubles = Troubles(plan.name, task_timeout_s(context.options))
        self._sift_until: dict[int, int] = {}
        """Up to which offset of its source a task leaves out rows for which a Column fails."""
        self._idle_rounds = 0
        self._batch_started_s = 0.0
        self._purged_s = self._looked_s = time.monotonic()

    def run(self) -> None:
        """Until the app is stopped. Raises StreamsError if the app must end."""
        try:
            while not self._context.stop.is_set():
                try:
                    self._run_round()
                except (Unreachable, KafkaError, StateUnavailable) as error:
                    if isinstance(error, NotAuthenticated):
                        raise StreamsError(str(error)) from None
                    self._note_trouble(WHOLE, explain_failure(error))
                    self._context.stop.wait(self._troubles.pause_s(WHOLE, time.monotonic()))
        finally:
            self._client.close()

    def _run_round(self) -> None:
        """Start tasks that have to be started, then run one batch if there is anything to do."""
        self._look_around_if_due()
        self._start_tasks()
        orders = self._plan_batch()
        self._end_trouble(WHOLE)
        if not self._troubles:
            self._progress.state = RUNNING
        self._purge_if_due()
        if not orders:
            pause = IDLE_PAUSES_S[min(self._idle_rounds, len(IDLE_PAUSES_S) - 1)]
            self._idle_rounds += 1
            self._context.stop.wait(pause)
            return
        self._idle_rounds = 0
        early_s = self._batch_started_s + self._context.options.interval_ms / 1000 - time.monotonic()
        if early_s > 0 and self._context.stop.wait(early_s):
            return
        self._batch_started_s = time.monotonic()
        reports = self._run_jobs(orders)
        now_s = time.monotonic()
        self._take_reports(reports)
        self._progress.add_batch(now_s, now_s - self._batch_started_s, reports)

    def _look_around_if_due(self) -> None:
        """An idle copy of the app learns that another one has taken over, and gives up its state. New partitions of a
        source get tasks; an app with state must end, because keys have other partitions now. An app also ends if one of
        its topics was created again."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_SECONDS:
            return
        self._looked_s = now_s
        self._check_owner()
        app, sources = self._context.options.name, {source.topic for source in self._plan.sources}
        try:
            counts = self._client.count_partitions(sources | {store.changelog for store in self._plan.stores})
        except UnknownTopic:
            return  # a topic that was deleted: its task says so
        check_same_topics(self._client, app, counts, self._context.topic_ids)
        before, count = len(self._partitions), min(counts[topic] for topic in sources)
        if count <= before:
            return
        if self._context.has_stores:
            raise IncompatibleTopology(
                f"{app}: topic {self._plan.sources[0].topic!r} had {before} partitions and has {count}."
                f" ottla stream reset {app} rebuilds the state from the topics"
            )
        added = range(before, count)
        commit_added(self._client, app, self._plan, added, transaction_timeout_ms(self._context.options))
        self._partitions = range(count)

    def _check_owner(self) -> None:
        if not self._context.is_owner(self._client):
            raise FencedApp(f"app {self._context.options.name!r}: another copy of it was started and has taken over")

    # Tasks

    def _start_tasks(self) -> None:
        """Fence older owners of tasks that are new or have failed, then read what they have committed."""
        now_s = time.monotonic()
        missing = [
            number
            for number in self._partitions
            if number not in self._tasks and not self._troubles.pause_s(number, now_s)
        ]
        if not missing:
            return
        self._check_owner()
        timeout_ms = transaction_timeout_ms(self._context.options)
        producers = {number: init_producer(self._client, self._name(number), timeout_ms) for number in missing}
        positions = read_positions(self._client, self._plan, missing)
        ends = self._read_changelog_ends(missing)
        committed_s = now_s - COMMIT_AGAIN_SECONDS + FIRST_COMMIT_SECONDS
        tasks = [_Task(each, producers[each], positions[each], ends[each], committed_s) for each in missing]
        for store in self._plan.stores:
            name = store.spec.name
            self._context.state.assign(name, {task.partition: self._find_state(task, name) for task in tasks})
        self._tasks.update({task.partition: task for task in tasks})
        for task in tasks:
            self._context.following.note(self._plan, task.partition, task.positions)

    def _name(self, partition: int) -> str:
        return self._plan.transactional_id(self._context.options.name, partition)

    def _read_changelog_ends(self, partitions: Iterable[int]) -> dict[int, dict[str, int]]:
        """The last stable offset of each changelog: no transaction of the task is open, because it was fenced."""
        own = [each for each in self._plan.stores if not each.spec.is_source]
        wanted = {TopicPartition(each.changelog, number): LATEST for number in partitions for each in own}
        found = self._client.list_offsets(wanted, READ_COMMITTED)
        return {
            number: {each.spec.name: found[TopicPartition(each.changelog, number)].offset for each in own}
            for number in partitions
        }

    # Batches

    def _plan_batch(self) -> list[Order]:
        """Orders for all tasks that have something to read, or for which time has passed."""
        idleness, unit = self._context.idleness, self._plan.name
        idle_times = {number: idleness.look(unit, number) for number in self._tasks}
        topics = dict.fromkeys(source.topic for source in self._plan.sources)
        wanted = {TopicPartition(topic, number): LATEST for number in self._tasks for topic in topics}
        ends = {where: each.offset for where, each in self._client.list_offsets(wanted, READ_COMMITTED).items()}
        self._note_lag(ends)
        self._note_hearing(ends)
        orders = []
        for task in [*self._tasks.values()]:
            if not self._is_within(task, ends):
                continue
            ranges = [
                SourceRange(position.offset, ends[TopicPartition(source.topic, task.partition)], position.stream_time)
                for source, position in zip(self._plan.sources, task.positions, strict=True)
            ]
            idle = idle_times[task.partition]
            has_rows = any(each.end > each.start for each in ranges)
            must_commit = time.monotonic() - task.committed_s >= COMMIT_AGAIN_SECONDS
            if has_rows or must_commit or (idle and idleness.is_due(unit, task.partition)):
                orders.append(self._make_order(task, ranges, idle, must_commit=must_commit))
        return orders

    def _is_within(self, task: _Task, ends: Mapping[TopicPartition, int]) -> bool:
        """False if a topic ends before the task's position. The task is started anew, which tells what is wrong.

        A position that somebody has set may be beyond a transaction that is open.
        """
        for source, position in zip(self._plan.sources, task.positions, strict=True):
            where = TopicPartition(source.topic, task.partition)
            if position.offset > ends[where]:
                end = self._client.list_offsets({where: LATEST})[where].offset
                if position.offset > end:
                    message = f"{where}: the app has read up to offset {position.offset}, and the topic ends at {end}"
                    self._take_failure(task.partition, Failure(BROKEN, message))
                    return False
        return True

    def _make_order(
        self, task: _Task, ranges: list[SourceRange], idle_times: Mapping[int, int], *, must_commit: bool
    ) -> Order:
        state = {
            store.spec.name: StateVersion(
                self._context.state.locate(store.spec.name, task.partition), self._find_state(task, store.spec.name)
            )
            for store in self._plan.stores
        }
        awaited = self._context.hearing.list_awaited(self._plan.name, task.partition)
        return Order(task.partition, task.producer, ranges, now_ms(), state, idle_times, awaited, must_commit)

    def _find_state(self, task: _Task, name: str) -> int:
        """Up to which offset a store must be there: of a source table, up to where the task has read its topic."""
        if name in task.changelog_ends:
            return task.changelog_ends[name]
        store = next(each for each in self._plan.stores if each.spec.name == name)
        at = next(at for at, source in enumerate(self._plan.sources) if source.topic == store.changelog)
        return task.positions[at].offset

    def _note_hearing(self, ends: Mapping[TopicPartition, int]) -> None:
        for task in self._tasks.values():
            for source, position in zip(self._plan.sources, task.positions, strict=True):
                if source.holds != PARCELS:
                    has_rows = position.offset < ends[TopicPartition(source.topic, task.partition)]
                    is_silent = position.stream_time == NO_TIME and not has_rows
                    self._context.hearing.note(source.topic, task.partition, is_silent=is_silent)

    def _note_lag(self, ends: Mapping[TopicPartition, int]) -> None:
        lag: dict[str, int] = {}
        for number in self._partitions:
            task = self._tasks.get(number)
            is_drained = task is not None
            for source, position in zip(self._plan.sources, task.positions if task else (), strict=False):
                behind = max(ends[TopicPartition(source.topic, number)] - position.offset, 0)
                lag[source.topic] = lag.get(source.topic, 0) + behind
                is_drained = is_drained and not behind
            self._context.idleness.note(self._plan.name, number, is_drained=is_drained)
        self._progress.lag = lag

    def _run_jobs(self, orders: Sequence[Order]) -> list[Report]:
        """The reports of all orders, with their transactions ended."""
        sifted = [each for each in orders if self._is_sifted(each)]
        plain = [each for each in orders if each not in sifted]
        reports = self._run_job(plain) if plain else []
        reports += [self._sift(each) for each in sifted]
        return [self._end_transaction(each) if each.is_open else each for each in reports]

    def _run_job(self, orders: Sequence[Order]) -> list[Report]:
        try:
            return self._jobs.run(orders)
        except JobFailed as error:
            if error.is_of_data and self._plan.column_steps:
                self._sift_until |= {each.partition: each.ranges[0].end for each in orders}
            return [_give_up(each, error) for each in orders]

    def _is_sifted(self, order: Order) -> bool:
        """Whether a Column has failed for a row in this part of the source. The task has been started anew since, so
        nothing of the batch that failed is in its transaction."""
        until = self._sift_until.get(order.partition, 0)
        if order.ranges[0].start >= until:
            self._sift_until.pop(order.partition, None)
        return order.ranges[0].start < until

    def _sift(self, order: Order) -> Report:
        def run(order: Order) -> Report:
            (report,) = self._jobs.run([order])
            return report

        try:
            return sift(run, order, only_first=self._context.options.on_error == FAIL)
        except JobFailed as error:
            return _give_up(order, error)

    # Reports

    def _end_transaction(self, report: Report) -> Report:
        try:
            return end_batch(self._client, report, transaction_timeout_ms(self._context.options))
        except (KafkaError, Unreachable) as error:
            return Report(report.partition, report.producer, failure=explain_failure(error))

    def _take_reports(self, reports: Iterable[Report]) -> None:
        for report in reports:
            if report.failure is not None:
                self._take_failure(report.partition, report.failure)
                continue
            task = self._tasks[report.partition]
            task.producer = report.producer
            task.positions = list(report.positions)
            task.changelog_ends.update(report.changelog_ends)
            if report.has_committed:
                task.committed_s = time.monotonic()
            self._context.following.note(self._plan, task.partition, task.positions)
            self._end_trouble(report.partition)
            self._advance_state(task)

    def _advance_state(self, task: _Task) -> None:
        for store in self._plan.stores:
            name = store.spec.name
            self._context.state.advance(name, task.partition, self._find_state(task, name))

    def _take_failure(self, partition: int, failure: Failure) -> None:
        """A task has failed: it starts anew later. Raises StreamsError if that is no use."""
        self._tasks.pop(partition, None)
        if failure.kind == REFUSED:
            self._abort(partition)
            raise StreamsError(failure.message)
        if failure.kind == FENCED:
            self._check_owner()
        self._note_trouble(partition, failure)

    def _abort(self, partition: int) -> None:
        """End the transaction of a failed task, so that readers need not wait until it times out."""
        try:
            init_producer(self._client, self._name(partition), transaction_timeout_ms(self._context.options))
        except (KafkaError, Unreachable):
            return  # it times out

    def _note_trouble(self, partition: int, failure: Failure) -> None:
        self._progress.trouble = failure.message
        self._progress.state = RESTORING if failure.kind == STILL_RESTORING else WAITING
        self._progress.retries += failure.kind != STILL_RESTORING
        self._troubles.note(partition, failure, time.monotonic())

    def _end_trouble(self, partition: int) -> None:
        if self._troubles.end(partition):
            self._progress.trouble = ""

    def _purge_if_due(self) -> None:
        """Delete what was read from repartition topics, from time to time."""
        now_s = time.monotonic()
        if now_s - self._purged_s < PURGE_SECONDS:
            return
        self._purged_s = now_s
        positions = {
            TopicPartition(source.topic, task.partition): position.offset
            for task in self._tasks.values()
            for source, position in zip(self._plan.sources, task.positions, strict=True)
        }
        purge(self._client, self._context.purging.note(self._plan.name, positions))


def _give_up(order: Order, error: JobFailed) -> Report:
    return Report(order.partition, order.producer, failure=Failure(BROKEN, str(error)))
