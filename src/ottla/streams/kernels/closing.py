"""When windows close: what each source partition has reached, and the windows of a store ordered by their end.

A windowed aggregate has a second store, its *closing store*:

    0x00                                a JSON object: the time of each source partition, the closing time, and up to
                                        which end windows were closed and deleted
    0x01, end of the window, its key    nothing: the window with this key in the first store ends then
    0x02, a key                         of session windows only, see `session_index.py`

The *closing time* is the lowest time of all source partitions that the task has heard of. It never goes back. With
`close_idle`, a source partition that has had no record for that long, and has none left to read, holds up nobody. If
all of them are idle, the highest time goes on with the wall clock.

Which windows were closed is kept, not computed from the closing time: the app may be started again with another grace
period, and each window closes once all the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
import pyarrow as pa

from ottla.streams.kernels.grouping import as_array
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.rows import SOURCE, STREAM_TIME
from ottla.streams.state.keys import decode_time, encode_time
from ottla.streams.state.store import Store

DEFAULT_RETENTION_MS: Final = 86_400_000
"""How long after its end a window stays in its store, for queries, if the user does not say."""

NO_TIME: Final = -1
"""The closing time before any source partition was heard of. Event times are not below zero."""

_TIMES = b"\x00"
_WINDOW = b"\x01"
_TIME_BYTES = len(encode_time(0))


@dataclass(frozen=True)
class WindowLife:
    """How long windows are open, and how long they are kept. Picklable; `begin` starts a batch."""

    store: str
    open_ms: int
    """A window is closed once this long after its end is not after the closing time."""
    is_final: bool
    retention_ms: int = DEFAULT_RETENTION_MS
    close_idle_ms: int | None = None

    @property
    def keep_ms(self) -> int:
        """How long after its end a window is in the store."""
        return max(self.open_ms, self.retention_ms)

    @property
    def specs(self) -> tuple[StoreSpec, StoreSpec]:
        """The store of the windows and the closing store."""
        return StoreSpec(self.store), StoreSpec(f"{self.store}-closing")

    def begin(self, rows: pa.Table, context: KernelContext) -> "Windows":
        """Move the closing time to what this batch has brought."""
        closing = ClosingStore(context.store(self.specs[1].name), self)
        closed_before, expired_before = closing.closed_before, closing.expired_before
        closing.advance(rows, context)
        return Windows(self, context.store(self.store), closing, closed_before, expired_before)


@dataclass(frozen=True)
class Windows:
    """The windows of a store during one batch."""

    life: WindowLife
    store: Store
    _closing: "ClosingStore"
    _closed_before: int
    """Windows that end before this were closed by earlier batches."""
    _expired_before: int
    """The same of windows that were deleted."""

    @property
    def time(self) -> int:
        """The closing time."""
        return self._closing.time

    @property
    def ended_before(self) -> int:
        """Windows that end before this have ended for good: they were emitted (with "final"), or are deleted."""
        return self._closed_before if self.life.is_final else self._expired_before

    def add(self, ends: Iterable[int], keys: Iterable[bytes]) -> None:
        self._closing.add(ends, keys)

    def remove(self, end: int, key: bytes) -> None:
        """Delete a window from the store."""
        self.store.put(key, None)
        self._closing.remove([(end, key)])

    def close(self) -> list[bytes]:
        """The keys of the windows that this batch has closed, by their end."""
        return [key for _, key in self._closing.find(self._closed_before, self._closing.closed_before)]

    def expire(self) -> list[bytes]:
        """Delete windows that were kept long enough. Returns their keys."""
        expired = self._closing.find(self._expired_before, self._closing.expired_before)
        for end, key in expired:
            self.remove(end, key)
        return [key for _, key in expired]


class ClosingStore:
    """The closing store during one batch."""

    def __init__(self, store: Store, life: WindowLife) -> None:
        self._store = store
        self._life = life
        kept = orjson.loads(store.get(_TIMES) or b"{}")
        self._times = {int(source): time for source, time in kept.get("times", {}).items()}
        self.time: int = kept.get("closing_time", NO_TIME)
        """The closing time. Before `advance` it is that of the batch before."""
        self.closed_before: int = kept.get("closed_before", self.time - life.open_ms + 1)
        self.expired_before: int = kept.get("expired_before", self.time - life.keep_ms + 1)
        """The ends of windows that the closing time has closed and deleted are before these. They never go back."""

    def advance(self, rows: pa.Table, context: KernelContext) -> None:
        """Note what the source partitions have reached with this batch, and move the closing time."""
        for source, time in (*_times_of(rows), *context.source_times.items()):
            self._times[source] = max(time, self._times.get(source, NO_TIME))
        self.time = max(self.time, self._find_time(context, self._life.close_idle_ms))
        self.closed_before = max(self.closed_before, self.time - self._life.open_ms + 1)
        self.expired_before = max(self.expired_before, self.time - self._life.keep_ms + 1)
        kept = {
            "times": {str(source): time for source, time in sorted(self._times.items())},
            "closing_time": self.time,
            "closed_before": self.closed_before,
            "expired_before": self.expired_before,
        }
        encoded = orjson.dumps(kept)
        if encoded != self._store.get(_TIMES):
            self._store.put(_TIMES, encoded)

    def _find_time(self, context: KernelContext, close_idle_ms: int | None) -> int:
        idle = {
            source: self._times[source] + idle_ms
            for source, idle_ms in context.idle_times.items()
            if close_idle_ms is not None and idle_ms >= close_idle_ms and source in self._times
        }
        active = [time for source, time in self._times.items() if source not in idle]
        return min(active) if active else max(idle.values(), default=NO_TIME)

    def add(self, ends: Iterable[int], keys: Iterable[bytes]) -> None:
        """Note windows of the first store, which has their keys, by the ends of the windows."""
        for end, key in zip(ends, keys, strict=True):
            self._store.put(_WINDOW + encode_time(end) + key, b"{}")

    def remove(self, windows: Iterable[tuple[int, bytes]]) -> None:
        for end, key in windows:
            self._store.put(_WINDOW + encode_time(end) + key, None)

    def find(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """Ends and keys of windows that end from `start` on and before `end`, in this order."""
        if end <= start:
            return []
        found = self._store.range(_WINDOW + encode_time(start), _WINDOW + encode_time(end))
        cut = len(_WINDOW) + _TIME_BYTES
        return [(decode_time(key[len(_WINDOW) : cut]), key[cut:]) for key, _ in found]


def _times_of(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """The highest stream time of each source partition in these rows."""
    if rows.num_rows:
        sources, times = (as_array(rows.column(name)).to_numpy(zero_copy_only=False) for name in (SOURCE, STREAM_TIME))
        for source in np.unique(sources[~np.isnan(sources)] if sources.dtype.kind == "f" else sources):
            yield int(source), int(times[sources == source].max())
