"""Left rows of a stream-stream join that wait for a match, by time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ottla.streams.kernels.buckets import BucketRow
from ottla.streams.kernels.stream_times import FIRST_KEY
from ottla.streams.state.keys import decode_time, encode_time, prefix_of, split_window_key
from ottla.streams.state.store import Store

_TIME_BYTES = len(encode_time(0))
_PLACE_BYTES = 4


@dataclass(frozen=True)
class Released:
    """A row that comes out without a match."""

    id: bytes
    order: int
    """The place of the row that has moved the time."""
    value: bytes | None
    """From the store; None for a row of the batch."""
    row: int | None
    """The number of a row of the batch."""

    @property
    def key(self) -> bytes:
        return split_window_key(self.id[_TIME_BYTES:-_PLACE_BYTES] + self.id[:_TIME_BYTES])[0]


def waiting_id(key: bytes, row: BucketRow) -> bytes:
    """The key of a waiting row in its store: ordered by time."""
    return encode_time(row.time) + prefix_of(key) + row.place.to_bytes(_PLACE_BYTES)


class UnmatchedRows:
    """The waiting rows during one batch."""

    def __init__(self, store: Store, open_ms: int) -> None:
        """A row waits until time is more than `open_ms` beyond it."""
        self.open_ms = open_ms
        self.released: list[Released] = []
        self._store = store
        self._heap: list[tuple[bytes, bytes | None]] = []
        self._read_until = FIRST_KEY
        self._added: dict[bytes, int] = {}
        self._removed: set[bytes] = set()

    def add(self, id: bytes, row: int) -> None:
        """A row of the batch begins to wait."""
        self._added[id] = row
        heappush(self._heap, (id, None))

    def remove(self, id: bytes) -> None:
        """A row has a match, so it does not wait any longer."""
        self._removed.add(id)
        if self._added.pop(id, None) is None:
            self._store.put(id, None)

    def read(self, closed: int) -> None:
        """Read the rows from the store that come out until this time: one round trip instead of one for each row."""
        until = encode_time(max(closed - self.open_ms, 0))
        if until > self._read_until:
            for id, value in self._store.range(self._read_until, until):
                heappush(self._heap, (id, value))
            self._read_until = until

    def close(self, closed: int, order: int) -> None:
        """Release the rows whose time is over, in the order of their times."""
        self.read(closed)
        while self._heap and decode_time(self._heap[0][0][:_TIME_BYTES]) + self.open_ms < closed:
            id, value = heappop(self._heap)
            if id in self._removed:
                continue
            self.released.append(Released(id, order, value, self._added.pop(id, None)))
            if value is not None:
                self._store.put(id, None)

    def save(self, encode: Callable[[Sequence[int]], Sequence[bytes]]) -> None:
        """Write the rows of the batch that still wait; `encode` makes values of their rows."""
        if self._added:
            times = [decode_time(id[:_TIME_BYTES]) for id in self._added]
            self._store.put_many(list(self._added), encode(list(self._added.values())), times)
