"""What may be deleted from repartition topics: the records that all their readers have read."""

import threading
from collections.abc import Mapping

from ottla.streams.planning.plan import AppPlan
from ottla.topic_partition import TopicPartition


class Purging:
    """Shared by the loops of all subtopologies."""

    def __init__(self, plan: AppPlan) -> None:
        purged = {each.name for each in plan.internal_topics if each.is_purged}
        self._lock = threading.Lock()
        self._readers: dict[str, set[str]] = {name: set() for name in purged}
        for unit in plan.subtopologies:
            for source in unit.sources:
                if source.topic in purged:
                    self._readers[source.topic].add(unit.name)
        self._positions: dict[TopicPartition, dict[str, int]] = {}

    def note(self, unit: str, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """A subtopology has committed these positions. Returns up to which offset each partition of a repartition topic
        among them may be deleted: nothing of one that another reader has not told of."""
        found = {}
        with self._lock:
            for where, offset in positions.items():
                if where.topic in self._readers:
                    known = self._positions.setdefault(where, {})
                    known[unit] = offset
                    if known.keys() == self._readers[where.topic]:
                        found[where] = min(known.values())
        return found
