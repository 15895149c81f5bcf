"""Which source partitions have nothing left to read, and since when, for windows that close when time alone passes.

A source partition is idle for a task only if everything that was read from it has reached the task: the task that reads
the partition has read all of it, and so have all tasks on the way. What a batch tells its kernels was looked up before
the ends of its topics were listed, so the batch has every row that was on the way then.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.streams.planning.plan import PARCELS, AppPlan, SubtopologyPlan

EMPTY_BATCH_SECONDS: Final = 1.0
"""How often a task whose sources are idle runs without rows."""


@dataclass
class _Unit:
    plan: SubtopologyPlan
    partitions: int
    closes_idle: bool
    drained_since_s: dict[int, float] = field(default_factory=dict)
    """Since when the tasks that have nothing to read have had nothing to read, by partition."""
    empty_batch_s: dict[int, float] = field(default_factory=dict)
    """When each task last ran without rows, by partition."""

    @property
    def is_drained(self) -> bool:
        return len(self.drained_since_s) == self.partitions


class Idleness:
    """Shared by the loops of all subtopologies."""

    def __init__(
        self,
        plan: AppPlan,
        counts: Mapping[str, int],
        numbers: Mapping[str, int],
        seconds: Callable[[], float],
    ) -> None:
        self._lock = threading.Lock()
        self._numbers = numbers
        self._seconds = seconds
        self._units = {
            unit.name: _Unit(unit, counts[unit.sources[0].topic], any(map(_closes_idle, unit.steps)))
            for unit in plan.subtopologies
        }
        self._writers: dict[str, list[_Unit]] = {}
        for each in self._units.values():
            topics = [sink.topic for sink in each.plan.sinks if sink.topic is not None]
            topics += [store.changelog for store in each.plan.stores if not store.spec.is_source]
            for topic in dict.fromkeys(topics):
                self._writers.setdefault(topic, []).append(each)

    def note(self, unit: str, partition: int, *, is_drained: bool) -> None:
        """A task's positions were compared with the ends of its topics."""
        with self._lock:
            since = self._units[unit].drained_since_s
            if is_drained:
                since.setdefault(partition, self._seconds())
            else:
                since.pop(partition, None)

    def look(self, unit: str, partition: int) -> dict[int, int]:
        """For how many milliseconds source partitions have been idle, by their number; nothing if no step asks."""
        found = self._units[unit]
        if not found.closes_idle:
            return {}
        with self._lock:
            now_s = self._seconds()
            times = self._own(found, partition, now_s)
            for source in found.plan.sources:
                if source.holds == PARCELS:
                    for writer in self._writers.get(source.topic, ()):
                        times |= self._passed(writer, now_s)
            return times

    def is_due(self, unit: str, partition: int) -> bool:
        """Whether a task that has nothing to read but idle sources shall run nevertheless, because time has passed."""
        found = self._units[unit]
        now_s = self._seconds()
        if now_s - found.empty_batch_s.get(partition, 0.0) < EMPTY_BATCH_SECONDS:
            return False
        found.empty_batch_s[partition] = now_s
        return True

    def _own(self, unit: _Unit, partition: int, now_s: float) -> dict[int, int]:
        """Idle source partitions among those that the task reads itself."""
        since_s = unit.drained_since_s.get(partition)
        if since_s is None:
            return {}
        return {
            self._numbers[source.topic] + partition: int((now_s - since_s) * 1000)
            for source in unit.plan.sources
            if source.holds != PARCELS and all(each.is_drained for each in self._writers.get(source.topic, ()))
        }

    def _passed(self, unit: _Unit, now_s: float) -> dict[int, int]:
        """Idle source partitions all of whose rows have passed through the unit."""
        times: dict[int, int] = {}
        for partition in range(unit.partitions):
            times |= self._own(unit, partition, now_s)
        if unit.is_drained:
            idle_ms = int((now_s - max(unit.drained_since_s.values())) * 1000)
            for source in unit.plan.sources:
                if source.holds == PARCELS:
                    for writer in self._writers.get(source.topic, ()):
                        before = self._passed(writer, now_s)
                        times |= {number: min(milliseconds, idle_ms) for number, milliseconds in before.items()}
        return times


def _closes_idle(step: object) -> bool:
    return getattr(getattr(step, "kernel", None), "close_idle_ms", None) is not None
