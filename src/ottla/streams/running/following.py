"""Tables that are only there for queries: their positions follow those of another subtopology that reads the topic.

The state servers read the topic of such a table themselves, so a task would read it once more only to find bad records
and to move a position on. If another subtopology reads the same records, it finds those, and the driver moves the
position: with the transactional id of the table's own task and in its own group, as a task would. So it does not matter
to a later version of the app, or to an earlier one, which of the two has moved it.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.client.client import Client
from ottla.client.transactions import commit_offsets_in_transaction
from ottla.streams.planning.plan import PARCELS, AppPlan, SourcePlan, SubtopologyPlan
from ottla.streams.running.explaining import explain_failure
from ottla.streams.running.positions import to_committed_offset
from ottla.streams.running.work import Order, Position, Report
from ottla.topic_partition import TopicPartition

WAIT_SECONDS: Final = 0.2
"""How long a follower waits at a time for the other subtopology."""


class Following:
    """Who follows whom, and how far those who are followed have committed. Shared by the loops of all subtopologies."""

    def __init__(self, plan: AppPlan) -> None:
        self._leaders = find_leaders(plan)
        self._positions: dict[tuple[str, str, int], Position] = {}
        """By subtopology, topic and partition."""
        self._moved = threading.Condition()

    def find_leader(self, unit: str) -> str | None:
        """The subtopology that this one follows."""
        return self._leaders.get(unit)

    def note(self, plan: SubtopologyPlan, partition: int, positions: Sequence[Position]) -> None:
        """The task of a subtopology has committed these positions of its sources."""
        if plan.name not in self._leaders.values():
            return
        with self._moved:
            for source, position in zip(plan.sources, positions, strict=True):
                self._positions[plan.name, source.topic, partition] = position
            self._moved.notify_all()

    def await_beyond(self, leader: str, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position]:
        """The positions of those partitions that the leader has read beyond the known offsets. Waits a moment until
        there is one."""

        def find() -> dict[TopicPartition, Position]:
            found = {where: self._positions.get((leader, *where)) for where in known}
            return {where: each for where, each in found.items() if each is not None and each.offset > known[where]}

        with self._moved:
            self._moved.wait_for(find, WAIT_SECONDS)
            return find()


class FollowingJobs:
    """Takes the place of Spark's jobs for a subtopology that follows another one."""

    def __init__(self, plan: SubtopologyPlan, client: Client, following: Following, leader: str) -> None:
        (self._source,) = plan.sources
        self._group = plan.group
        self._client = client
        self._following = following
        self._leader = leader

    def run(self, orders: Sequence[Order]) -> list[Report]:
        """Moves the positions on to those of the leader, in transactions that are left open. A position that is beyond
        the leader's stays where it is."""
        wanted = {self._locate(order): order.ranges[0].start for order in orders}
        found = self._following.await_beyond(self._leader, wanted)
        return [self._move(order, found.get(self._locate(order))) for order in orders]

    def _locate(self, order: Order) -> TopicPartition:
        return TopicPartition(self._source.topic, order.partition)

    def _move(self, order: Order, position: Position | None) -> Report:
        (before,) = order.ranges
        report = Report(order.partition, order.producer, [position or Position(before.start, before.stream_time)])
        if position is None and not order.must_commit:
            return report
        try:
            offsets = {self._locate(order): to_committed_offset(each) for each in report.positions}
            commit_offsets_in_transaction(self._client, order.producer, self._group, offsets)
        except Exception as error:
            return replace(report, failure=explain_failure(error))
        return replace(report, is_open=True)


def find_leaders(plan: AppPlan) -> dict[str, str]:
    """The subtopologies that need no tasks, each with the one that reads the same records."""
    leaders = [unit for unit in plan.subtopologies if not _only_serves(unit)]
    found = {}
    for unit in plan.subtopologies:
        if _only_serves(unit):
            readers = [each.name for each in leaders if any(_reads_alike(unit.sources[0], own) for own in each.sources)]
            if readers:
                found[unit.name] = readers[0]
    return found


def _only_serves(unit: SubtopologyPlan) -> bool:
    """Whether a subtopology does nothing with the records of its only source but to keep a table of them."""
    is_idle = not (unit.steps or unit.sinks or unit.column_steps)
    return is_idle and len(unit.sources) == 1 and unit.sources[0].holds != PARCELS


def _reads_alike(one: SourcePlan, other: SourcePlan) -> bool:
    """Whether both read the same topic and find the same records bad."""

    def describe(source: SourcePlan) -> tuple[object, ...]:
        return source.topic, source.holds, source.key_format, source.value_format, source.time, source.start

    return describe(one) == describe(other)
