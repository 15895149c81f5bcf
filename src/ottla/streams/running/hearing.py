"""Which source partitions a task must hear of before it closes windows.

Windows close when all source partitions have passed their end. A task behind an exchange hears of a source partition
only once somebody has read it, so which partition is read first would decide which windows close. Therefore a task is
told of every source partition that has had rows, or has some to read, from the beginning.
"""

import threading
from collections.abc import Mapping

from ottla.streams.planning.origins import find_origins
from ottla.streams.planning.plan import AppPlan


class Hearing:
    """Shared by the loops of all subtopologies."""

    def __init__(self, plan: AppPlan, counts: Mapping[str, int], numbers: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._counts = counts
        self._numbers = numbers
        self._origins = find_origins(plan)
        self._closes_windows = {each.name: each.closes_windows for each in plan.subtopologies}
        self._is_silent: dict[tuple[str, int], bool] = {}

    def note(self, topic: str, partition: int, *, is_silent: bool) -> None:
        """A source partition was looked at: it is silent if it has neither had rows nor has any to read."""
        with self._lock:
            self._is_silent[topic, partition] = is_silent and self._is_silent.get((topic, partition), True)

    def list_awaited(self, unit: str, partition: int) -> list[int]:
        """Numbers of the source partitions that a task must hear of. One that nobody has looked at may have rows."""
        if not self._closes_windows[unit]:
            return []
        origins = self._origins[unit]
        wanted = [(topic, partition) for topic in sorted(origins.own)]
        wanted += [(topic, number) for topic in sorted(origins.others) for number in range(self._counts[topic])]
        with self._lock:
            return [
                self._numbers[topic] + number
                for topic, number in dict.fromkeys(wanted)
                if number < self._counts[topic] and not self._is_silent.get((topic, number), False)
            ]
