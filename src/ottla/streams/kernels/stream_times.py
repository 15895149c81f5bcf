"""How far event time has come, row by row: the lowest time of all source partitions that a step has heard of.

The rule is that of `closing.py`, which moves on once a batch. A join and a processor move on with each row, so that a
row sees the same time however the input is cut. The times are kept in a store of the step, because a repartition topic
tells of its source partitions only now and then. Their key begins with two zero bytes, which no other key there does.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from ottla.streams.state.store import Store

TIMES_KEY: Final = b"\x00\x00times"
FIRST_KEY: Final = b"\x00\x01"
"""All other keys of such a store are not below this one."""
NO_TIME: Final = -1
"""Before any source partition was heard of. Event times are not below zero."""


class StreamTimes:
    """Stream times by number of source partition during one batch."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._saved = store.get(TIMES_KEY)
        kept = orjson.loads(self._saved or b"{}")
        self._times = {int(source): time for source, time in kept.get("times", {}).items()}
        self.closed: int = kept.get("closed", NO_TIME)
        """What all source partitions have reached. It never goes back."""

    def expect(self, sources: Iterable[int | None]) -> None:
        """The step hears of these source partitions: new ones hold up the time until their first row."""
        for source in sources:
            if source is not None:
                self._times.setdefault(source, NO_TIME)

    def advance(self, source: int | None, time: int) -> bool:
        """A source partition has reached this time. Returns whether `closed` has grown."""
        if source is None or time <= self._times.get(source, NO_TIME):
            return False
        before = self._times.get(source, NO_TIME)
        self._times[source] = time
        return before <= self.closed and self._close(min(self._times.values()))

    def preview(self, source_times: Mapping[int, int]) -> int:
        """What `closed` will be when the source partitions have reached these times."""
        times = [max(time, source_times.get(source, NO_TIME)) for source, time in self._times.items()]
        return max(min(times, default=NO_TIME), self.closed)

    def finish(self, source_times: Mapping[int, int], idle_times: Mapping[int, int], close_idle_ms: int | None) -> bool:
        """The end of a batch: take over what it told without a row, and save everything. Returns whether `closed` has
        grown. With `close_idle_ms`, a source partition that has had no record for that long holds up nobody. If all
        are idle, the highest time goes on with the wall clock."""
        for source, time in source_times.items():
            self._times[source] = max(time, self._times.get(source, NO_TIME))
        idle = {
            source: self._times[source] + idle_ms
            for source, idle_ms in idle_times.items()
            if close_idle_ms is not None and idle_ms >= close_idle_ms and source in self._times
        }
        active = [time for source, time in self._times.items() if source not in idle]
        has_grown = self._close(min(active) if active else max(idle.values(), default=NO_TIME))
        times = {str(source): time for source, time in sorted(self._times.items())}
        encoded = orjson.dumps({"times": times, "closed": self.closed})
        if self._times and encoded != self._saved:
            self._store.put(TIMES_KEY, encoded)
        return has_grown

    def _close(self, time: int) -> bool:
        if time <= self.closed:
            return False
        self.closed = time
        return True
