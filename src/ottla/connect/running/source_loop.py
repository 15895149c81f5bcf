"""The rounds of a source: what to read, in which task, from which offset."""

from collections.abc import Iterable
from typing import Final

from ottla.connect.connector import Part, Source, SourceOffset, partition_key
from ottla.connect.running.loop import Loop, LoopContext
from ottla.connect.running.slots import TaskSlot
from ottla.connect.running.work import Order, PartOrder, Report
from ottla.connect.worker.offsets import SourceOffsets

PARTS_MAX: Final = 200
"""Source partitions in one order. A task reads one after the other until it has enough rows."""


class SourceLoop(Loop):
    def __init__(self, context: LoopContext, source: Source, stored: SourceOffsets) -> None:
        super().__init__(context)
        self._source = source
        self._stored = stored
        self._offsets: dict[str, SourceOffset] = {}
        """By `partition_key`."""
        self._partitions: dict[str, str] = {}
        """The `partition_key` of each key of the offsets topic in an order."""
        self._next: dict[int, int] = {}
        """Where each task goes on among its parts, so that all of them have their turn."""

    def start(self) -> None:
        self.context.ownership.claim()
        self._read_offsets()

    def recover(self, slots: Iterable[TaskSlot]) -> None:
        self._read_offsets()

    def _read_offsets(self) -> None:
        self._stored.refresh()
        self._offsets = {
            partition_key(partition): offset for partition, offset in self._stored.list_offsets(self.context.name)
        }

    def plan(self) -> list[Order]:
        by_task: dict[int, list[Part]] = {}
        slots: dict[int, TaskSlot] = {}
        for part in self._source.plan(dict(self._offsets)):
            slot = self.slots.find(partition_key(part.partition))
            if self.is_ready(slot):
                by_task.setdefault(slot.number, []).append(part)
                slots[slot.number] = slot
        self._partitions.clear()
        producers = {number: self.get_producer(slot) for number, slot in slots.items()}
        run = self.context.ownership.run  # its epoch changes when a task is started
        return [
            Order(number, producers[number], [self._order(each) for each in self._choose(number, parts)], run=run)
            for number, parts in by_task.items()
        ]

    def _choose(self, number: int, parts: list[Part]) -> list[Part]:
        if len(parts) <= PARTS_MAX:
            return parts
        first = self._next.get(number, 0) % len(parts)
        self._next[number] = first + PARTS_MAX
        return (parts[first:] + parts[:first])[:PARTS_MAX]

    def _order(self, part: Part) -> PartOrder:
        meaning = partition_key(part.partition)
        key = self._stored.find_key(self.context.name, part.partition)
        self._partitions[key] = meaning
        return PartOrder(key, part.partition, part.work, self._offsets.get(meaning))

    def take(self, report: Report) -> None:
        for key, offset in report.offsets.items():
            self._offsets[self._partitions[key]] = offset

    def finish_round(self) -> None:
        self._source.after_commit(dict(self._offsets))

    def is_done(self) -> bool:
        return self._source.is_done()
