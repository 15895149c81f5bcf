"""State of one partition, as a kernel sees it: what was there before the batch, under what the batch has written.

Keys are compared as unsigned bytes. A store remembers its writes. When the batch ends they become records of the
store's changelog topic, one for each key, in the transaction of the batch.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Protocol


class StateReader(Protocol):
    """The state of one store and partition before the batch. A state server has it, or a dictionary in a test."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys; None for a key that is not there."""

    def range(
        self, start: bytes, end: bytes | None, *, is_reversed: bool = False, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on and before `end` (None: up to the last), with their values, in order."""


class Store:
    """The state of one store and partition while a batch is processed. Reads see the batch's own writes."""

    def __init__(self, before: StateReader) -> None:
        self._before = before
        self._written: dict[bytes, bytes | None] = {}
        self._times: dict[bytes, int] = {}

    @property
    def changes(self) -> Mapping[bytes, bytes | None]:
        """What the batch has written; None for a deleted key."""
        return self._written

    @property
    def change_times(self) -> Mapping[bytes, int]:
        """The times of changes that have one of their own, by key. The others have the time of the batch."""
        return self._times

    def get(self, key: bytes) -> bytes | None:
        return self._written[key] if key in self._written else self._before.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys. One round trip, so ask for all keys of a batch at once."""
        if not self._written:
            return self._before.get_many(keys)
        missing = [key for key in keys if key not in self._written]
        found = iter(self._before.get_many(missing)) if missing else iter(())
        return [self._written[key] if key in self._written else next(found) for key in keys]

    def get_many_before(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values before the batch, whatever the batch has written. A join needs them of a table whose own step has
        already processed the whole batch."""
        return self._before.get_many(keys)

    def range(
        self, start: bytes, end: bytes | None, *, is_reversed: bool = False, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on and before `end` (None: up to the last), with their values, in order."""
        own = sorted(self._written)
        own = own[bisect_left(own, start) : len(own) if end is None else bisect_left(own, end)]
        if not own:
            yield from self._before.range(start, end, is_reversed=is_reversed, limit=limit)
            return
        limit_before = None if limit is None else limit + len(own)
        before = self._before.range(start, end, is_reversed=is_reversed, limit=limit_before)
        written = ((key, self._written[key]) for key in (reversed(own) if is_reversed else own))
        kept = (pair for pair in before if pair[0] not in self._written)
        found = 0
        for key, value in merge(kept, written, key=lambda pair: pair[0], reverse=is_reversed):
            if value is None:
                continue
            if limit is not None and found >= limit:
                return
            found += 1
            yield key, value

    def put(self, key: bytes, value: bytes | None, time_ms: int | None = None) -> None:
        """None deletes the key. The time is that of the changelog's record: of the latest row in the value."""
        self._written[key] = value
        if time_ms is not None:
            self._times[key] = time_ms
        else:
            self._times.pop(key, None)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None], times_ms: Iterable[int]) -> None:
        self._written.update(zip(keys, values, strict=True))
        self._times.update(zip(keys, times_ms, strict=True))


class MemoryReader:
    """State in a dictionary, for tests and the test driver."""

    def __init__(self, values: Mapping[bytes, bytes] | None = None) -> None:
        self.values = dict(values or {})

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.values.get(key) for key in keys]

    def range(
        self, start: bytes, end: bytes | None, *, is_reversed: bool = False, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        keys = sorted(key for key in self.values if key >= start and (end is None or key < end))
        for key in (keys[::-1] if is_reversed else keys)[:limit]:
            yield key, self.values[key]

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        """What happens to the state when a batch is committed."""
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
