"""Which offset of the target is which offset of the source.

The source connector writes points of the map: for each batch of a partition its first record and the offset after its
last one, and between them each place where the two offsets stop running in parallel (transactions and compaction leave
gaps in the source). Between two points whose distance is the same on both sides every offset is known exactly.
Elsewhere the answer is the highest offset that is certainly not too high: a group may get a few records again, and
never misses one.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from ottla.client.sending import OffsetRun

POINTS_MAX: Final = 50_000
"""Points that are kept of a partition. Above that, the older half is forgotten."""

Array = Any


def find_points(upstream: Array, end: int, runs: Sequence[OffsetRun], lag_max: int) -> Iterator[tuple[int, int]]:
    """Points of the map for one batch: the records' offsets in the source and in the target.

    `end` is the source's offset after the batch. Gaps of together `lag_max` offsets in the source may
    be left out; one in the target may not, because then an answer could be too high. Nothing if the target has not said
    its offsets, or has another number of records because a transformation drops some.
    """
    if not len(upstream) or sum(run.count for run in runs) != len(upstream) or any(run.first < 0 for run in runs):
        return
    downstream = np.concatenate([np.arange(run.first, run.first + run.count) for run in runs])
    yield int(upstream[0]), int(downstream[0])
    drift = upstream - downstream
    known = drift[0]
    for at in (np.flatnonzero((np.diff(upstream) != 1) | (np.diff(downstream) != 1)) + 1).tolist():
        if drift[at] - known > lag_max or downstream[at] - downstream[at - 1] > 1:
            yield int(upstream[at - 1]) + 1, int(downstream[at - 1]) + 1
            yield int(upstream[at]), int(downstream[at])
            known = drift[at]
    if end - int(downstream[-1]) - 1 - known > lag_max:
        yield int(upstream[-1]) + 1, int(downstream[-1]) + 1
    yield end, int(downstream[-1]) + 1


class OffsetMap:
    """The points of one partition, in order."""

    def __init__(self) -> None:
        self._upstream: list[int] = []
        self._downstream: list[int] = []

    def add(self, upstream: int, downstream: int) -> None:
        """A point that does not follow the last one means that the source or the target was begun anew."""
        if self._upstream and (upstream < self._upstream[-1] or downstream < self._downstream[-1]):
            self._upstream.clear()
            self._downstream.clear()
        self._upstream.append(upstream)
        self._downstream.append(downstream)
        if len(self._upstream) > POINTS_MAX:
            del self._upstream[: POINTS_MAX // 2]
            del self._downstream[: POINTS_MAX // 2]

    def translate(self, upstream: int) -> int | None:
        """The offset in the target; None if the map does not reach back so far."""
        at = bisect_right(self._upstream, upstream) - 1
        if at < 0:
            return None
        found = self._downstream[at]
        if at + 1 < len(self._upstream):
            found = max(found, self._downstream[at + 1] - (self._upstream[at + 1] - upstream))
        return found

    def translate_back(self, downstream: int) -> int | None:
        """The offset in the source, for groups that return to it."""
        at = bisect_right(self._downstream, downstream) - 1
        if at < 0:
            return None
        if at + 1 == len(self._downstream):
            return self._upstream[at]
        return min(self._upstream[at] + downstream - self._downstream[at], self._upstream[at + 1])
