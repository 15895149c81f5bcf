"""Stores as people ask for them: by the values of keys and by the times of windows, over all partitions.

A row is a dictionary with the columns of the key, `window_start` and `window_end` of a store with windows, and the
columns of the value. Rows come in the order of their keys' bytes. Of a key of one int or long, that is the order of the
numbers, except that those below zero come last; a range with numbers on both sides of zero is read in two parts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.keys import (
    after_prefix,
    decode_keys,
    encode_key,
    encode_time,
    prefix_of,
    split_session_key,
    split_window_key,
    window_key,
)
from ottla.streams.state.store import StateReader
from ottla.streams.state.values import RowCodec
from ottla.streams.windows import END, START

Time = datetime | int | str
"""A moment: a datetime (UTC if it has no zone), milliseconds since 1970, or either of them as text."""

KEY_VALUE, WINDOW, SESSION = "key-value", "window", "session"

_RANGE_TYPES: Final = (pa.string(), pa.binary(), pa.int32(), pa.int64())
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOW_FIELDS: Final = [pa.field(name, pa.timestamp("us", "UTC")) for name in (START, END)]


class QueryError(StreamsError):
    """A question that a store cannot answer."""


class Page(NamedTuple):
    rows: list[dict[str, Any]]
    after: bytes | None
    """The last key, with which the next page is asked for; None if there is none."""


class StoreView:
    """A store with all of its partitions. `reader` gives the state of a partition as it stands."""

    def __init__(self, plan: StorePlan, partition_count: int, reader: Callable[[int], StateReader]) -> None:
        self.plan = plan
        self.partition_count = partition_count
        self.key_columns = pa.schema([field for field in plan.key_columns if field.name not in (START, END)])
        windows = [] if plan.kind == KEY_VALUE else _WINDOW_FIELDS
        values = pa.schema([field for field in plan.value_columns if field.name not in (START, END)])
        self.columns = pa.schema([*self.key_columns, *windows, *values])
        self._values = RowCodec(values)
        self._reader = reader

    def get(self, key: Sequence[Any], window: Time | None = None) -> dict[str, Any] | None:
        """The row of a key, given by the values of its columns; of a store with windows, that of the window which
        begins at the given time. None if there is none."""
        encoded = self._encode(key)
        if self.plan.kind == KEY_VALUE:
            if window is not None:
                raise QueryError(f"store {self.plan.spec.name!r} has no windows")
            wanted = encoded
        elif window is None:
            raise QueryError(f"store {self.plan.spec.name!r} has windows: name the start of one of them")
        elif self.plan.kind == WINDOW:
            wanted = window_key(encoded, read_time(window))
        else:
            start = read_time(window)
            found = (row for row in self.windows(key) if row[START] == _to_datetime(start))
            return next(found, None)
        for partition in self._partitions_of(encoded):
            (value,) = self._reader(partition).get_many([wanted])
            if value is not None:
                return self._decode([(wanted, value)])[0]
        return None

    def windows(self, key: Sequence[Any], start: Time | None = None, end: Time | None = None) -> list[dict[str, Any]]:
        """The windows of a key: those that begin between two times, both included. Of sessions, those that have a part
        between them."""
        if self.plan.kind == KEY_VALUE:
            raise QueryError(f"store {self.plan.spec.name!r} has no windows")
        prefix = prefix_of(self._encode(key))
        first, after = prefix, after_prefix(prefix)
        if start is not None:
            first = prefix + encode_time(read_time(start))  # of sessions the end comes first, so this holds for both
        if end is not None and self.plan.kind == WINDOW:
            after = prefix + encode_time(read_time(end) + 1)
        pairs: list[tuple[bytes, bytes]] = []
        for partition in self._partitions_of(self._encode(key)):
            pairs += self._reader(partition).range(first, after)
        rows = self._decode(pairs)
        return rows if end is None else [row for row in rows if row[START] <= _to_datetime(read_time(end))]

    def range(
        self, start: Sequence[Any] | None, end: Sequence[Any] | None, limit: int, after: bytes | None = None
    ) -> Page:
        """Rows with keys from `start` to `end`, both included, of a store without windows."""
        if self.plan.kind != KEY_VALUE:
            raise QueryError(f"store {self.plan.spec.name!r} has windows: ask for a key, or for all rows by time")
        if start is None and end is None:
            return self._scan([(b"", None)], limit, after)
        if len(self.key_columns) != 1 or self.key_columns.field(0).type not in _RANGE_TYPES:
            kinds = ", ".join(f"{field.name} {field.type}" for field in self.key_columns)
            raise QueryError(f"ranges need a key of one string, binary, int or long; the key is {kinds}")
        return self._scan(list(self._bounds(start, end)), limit, after)

    def all(
        self, start: Time | None = None, end: Time | None = None, *, limit: int, after: bytes | None = None
    ) -> Page:
        """All rows; of a store with windows, those between two times (see `windows`)."""
        if start is None and end is None:
            return self._scan([(b"", None)], limit, after)
        if self.plan.kind == KEY_VALUE:
            raise QueryError(f"store {self.plan.spec.name!r} has no windows")
        first = None if start is None else read_time(start)
        last = None if end is None else read_time(end)
        return self._scan([(b"", None)], limit, after, lambda key: self._is_between(key, first, last))

    # Keys

    def _encode(self, key: Sequence[Any]) -> bytes:
        names = self.key_columns.names
        if len(key) != len(names):
            raise QueryError(f"the key of store {self.plan.spec.name!r} is {', '.join(names)}: {len(key)} values given")
        try:
            encoded = encode_key(dict(zip(names, key, strict=True)), self.key_columns)
        except ValueError as error:
            raise QueryError(str(error)) from None
        if encoded is None:
            raise QueryError(f"the key of store {self.plan.spec.name!r} is null")
        return encoded

    def _partitions_of(self, key: bytes) -> Sequence[int]:
        """Where a key is. The records of a source table are where their producer has put them, so the other partitions
        are asked as well."""
        own = partition_of(key, self.partition_count)
        if not self.plan.spec.is_source:
            return [own]
        return [own, *(partition for partition in range(self.partition_count) if partition != own)]

    def _bounds(self, start: Sequence[Any] | None, end: Sequence[Any] | None) -> Iterator[tuple[bytes, bytes | None]]:
        """The parts of a range as they lie in the store: from a key on, and before another."""
        first = None if start is None else self._encode(start)
        last = None if end is None else self._encode(end)
        if self.key_columns.field(0).type not in (pa.int32(), pa.int64()):
            yield first or b"", None if last is None else last + b"\0"
            return
        size = self.key_columns.field(0).type.bit_width // 8
        lowest, zero = b"\x80" + bytes(size - 1), bytes(size)
        ends_below_zero = end is not None and end[0] < 0
        if start is None or start[0] < 0:
            yield first or lowest, last + b"\0" if ends_below_zero and last is not None else None
            first = zero
        if not ends_below_zero:
            yield first or zero, lowest if last is None else last + b"\0"

    def _is_between(self, key: bytes, start: int | None, end: int | None) -> bool:
        if self.plan.kind == WINDOW:
            begins = ends = split_window_key(key)[1]
        else:
            _, ends, begins = split_session_key(key)
        return (start is None or ends >= start) and (end is None or begins <= end)

    # Rows

    def _scan(
        self,
        bounds: Sequence[tuple[bytes, bytes | None]],
        limit: int,
        after: bytes | None,
        is_wanted: Callable[[bytes], bool] | None = None,
    ) -> Page:
        found: list[tuple[bytes, bytes]] = []
        for start, end in bounds:
            if after is not None:
                if after < start or (end is not None and after >= end):
                    continue  # the page before has come beyond this part
                start, after = after + b"\0", None
            wanted = limit + 1 - len(found)
            readers = map(self._reader, range(self.partition_count))
            parts = [each.range(start, end, limit=wanted if is_wanted is None else None) for each in readers]
            pairs = merge(*parts, key=lambda pair: pair[0])
            found += islice((pair for pair in pairs if is_wanted is None or is_wanted(pair[0])), wanted)
            if len(found) > limit:
                return Page(self._decode(found[:limit]), found[limit - 1][0])
        return Page(self._decode(found), None)

    def _decode(self, pairs: Sequence[tuple[bytes, bytes]]) -> list[dict[str, Any]]:
        windows: list[Mapping[str, Any]]
        if self.plan.kind == KEY_VALUE:
            keys, windows = [key for key, _ in pairs], [{}] * len(pairs)
        elif self.plan.kind == WINDOW:
            split = [split_window_key(key) for key, _ in pairs]
            keys = [key for key, _ in split]
            windows = [self._describe_window(start) for _, start in split]
        else:
            sessions = [split_session_key(key) for key, _ in pairs]
            keys = [key for key, _, _ in sessions]
            windows = [{START: _to_datetime(start), END: _to_datetime(end)} for _, end, start in sessions]
        rows = decode_keys(keys, self.key_columns).to_pylist()
        values = [self._values.decode_row(value) for _, value in pairs]
        return [{**row, **window, **value} for row, window, value in zip(rows, windows, values, strict=True)]

    def _describe_window(self, start: int) -> dict[str, Any]:
        size = self.plan.window_ms
        return {START: _to_datetime(start), END: None if size is None else _to_datetime(start + size)}


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition of a key, as the Java client's partitioner chooses it."""
    from ottla.pipeline.packing import murmur2

    return int(murmur2(np.frombuffer(key, np.uint8), 0, len(key))) % partition_count


def read_time(given: Time) -> int:
    """Milliseconds since 1970. QueryError if it is no time."""
    if isinstance(given, str):
        text = given.strip()
        if text.removeprefix("-").isdecimal():
            return int(text)
        try:
            given = datetime.fromisoformat(text)
        except ValueError:
            raise QueryError(
                f"{text!r} is not a time such as 2026-01-31T12:00:00Z or milliseconds since 1970"
            ) from None
    if isinstance(given, datetime):
        moment = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    return given


def _to_datetime(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
