"""The rounds of a sink: which offsets of which topic partitions to write, in which task."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import Final

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.groups import fetch_offsets
from ottla.connect.connector import Sink
from ottla.connect.errors import ConnectError
from ottla.connect.running.loop import Loop, LoopContext
from ottla.connect.running.slots import TaskSlot
from ottla.connect.running.work import Order, RangeOrder, Report
from ottla.topic_partition import TopicPartition

log = getLogger(__name__)

REFRESH_S: Final = 5.0
"""How often new topics and partitions are looked for."""
RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True)
class Subscription:
    """What a sink reads."""

    topics: Sequence[str]
    pattern: str
    """`topics.regex`, if there are no topics."""
    group: str
    isolation: int
    reset: str
    """auto.offset.reset: earliest, latest or none."""


class SinkLoop(Loop):
    def __init__(self, context: LoopContext, sink: Sink, client: Client, subscription: Subscription) -> None:
        super().__init__(context)
        self._sink = sink
        self._client = client
        self._subscription = subscription
        self._positions: dict[TopicPartition, int] = {}
        self._kept_by_target: set[TopicPartition] = set()
        """Partitions whose positions the target keeps: only the target can change them."""
        self._ends: dict[TopicPartition, int] = {}
        """The ends of the topic partitions when they were last looked at."""
        self._refreshed_s = 0.0

    def start(self) -> None:
        self.context.ownership.claim()
        self._find_partitions()

    def _find_partitions(self) -> None:
        """Find partitions that exist, and where to go on in those that are new."""
        wanted = self._subscription
        self._refreshed_s = time.monotonic()
        if wanted.pattern:
            counts = self._client.count_partitions(pattern=wanted.pattern)
        else:
            existing = self._client.count_partitions(pattern=".*")
            counts = {topic: existing[topic] for topic in wanted.topics if topic in existing}
        found = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        for where in [where for where in self._positions if where not in set(found)]:
            log.warning("connector %s: %s does not exist any more", self.context.name, where)
            del self._positions[where]
            self.slots.forget(str(where))
        new = [where for where in found if where not in self._positions]
        if new:
            self._positions |= self._read_positions(new)

    def recover(self, slots: Iterable[TaskSlot]) -> None:
        numbers = {slot.number for slot in slots}
        mine = [where for where in self._positions if self.slots.find(str(where)).number in numbers]
        if mine:
            self._positions |= self._read_positions(mine)

    def _read_positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """What the target knows, else what was committed. What does not exist is as auto.offset.reset says."""
        committed = fetch_offsets(self._client, self._subscription.group, partitions, require_stable=True)
        kept = self._sink.find_positions(partitions)
        self._kept_by_target |= kept.keys()
        found = {where: each.offset for where, each in committed.items()} | dict(kept)
        found |= self._reset_lost(found)
        missing = [where for where in partitions if where not in found]
        return found | self._reset(missing) if missing else found

    def _reset_lost(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """New positions for those that lie outside of their logs."""
        firsts = self._client.list_offsets(dict.fromkeys(positions, EARLIEST))
        ends = self._client.list_offsets(dict.fromkeys(positions, LATEST))  # also behind open transactions
        lost = [
            where for where, offset in positions.items() if not firsts[where].offset <= offset <= ends[where].offset
        ]
        for where in lost:
            if where in self._kept_by_target:
                raise ConnectError(
                    f"{where}: the target says that it has everything up to offset {positions[where]}, and the log has"
                    f" {firsts[where].offset} to {ends[where].offset}; if the topic was created again,"
                    " stop the connector and reset its offsets"
                )
        reset = self._reset(lost) if lost else {}
        for where, offset in reset.items():
            message = "connector %s: %s: offset %d does not exist, going on at %d"
            log.warning(message, self.context.name, where, positions[where], offset)
        return reset

    def _reset(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        spec = RESETS.get(self._subscription.reset)
        if spec is None:
            raise ConnectError(f"{partitions[0]}: no offset to go on at, and auto.offset.reset is none")
        found = self._client.list_offsets(dict.fromkeys(partitions, spec), self._subscription.isolation)
        return {where: each.offset for where, each in found.items()}

    def plan(self) -> list[Order]:
        if time.monotonic() - self._refreshed_s >= REFRESH_S:
            self._find_partitions()
        ends = self._client.list_offsets(dict.fromkeys(self._positions, LATEST), self._subscription.isolation)
        self._ends = {where: each.offset for where, each in ends.items()}
        by_task: dict[int, list[RangeOrder]] = {}
        slots: dict[int, TaskSlot] = {}
        if any(start > ends[where].offset for where, start in self._positions.items()):
            self._positions |= self._reset_lost(self._positions)
        for where, start in self._positions.items():
            slot, end = self.slots.find(str(where)), ends[where].offset
            if start < end and self.is_ready(slot) and self._sink.is_due(where, start, end):
                by_task.setdefault(slot.number, []).append(RangeOrder(*where, start, end))
                slots[slot.number] = slot
        return [Order(number, self.get_producer(slots[number]), (), found) for number, found in by_task.items()]

    def find_lags(self) -> Mapping[int, Sequence[int]]:
        found: dict[int, list[int]] = {slot.number: [] for slot in [*self.slots]}
        ends = self._ends
        for where, offset in self._positions.copy().items():
            number = self.slots.get_number(str(where))
            if number is not None and where in ends:
                found.setdefault(number, []).append(max(ends[where] - offset, 0))
        return found

    def take(self, report: Report) -> None:
        for topic, partition, offset in report.positions:
            self._positions[TopicPartition(topic, partition)] = offset
            self.topics.add(topic)

    def finish_round(self) -> None:
        self._sink.after_commit(dict(self._positions))
