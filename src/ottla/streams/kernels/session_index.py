"""Which sessions the keys of a batch have, and what its rows make of them. Values are none of its business.

The closing store of session windows (`closing.py`) also has, for each key, the list of its sessions as pairs of start
and end. So the sessions of all keys of a batch are found with one read, where range reads would take one for each key.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from ottla.streams.state.keys import session_key, split_session_key
from ottla.streams.state.store import Store

_SESSIONS = b"\x02"


@dataclass(eq=False, slots=True)
class Session:
    """Rows of a key that are not further apart than the gap. `end` is the time of the last one."""

    start: int
    end: int
    content: Any
    """Whatever the values are made from."""
    last_row: int | None = None
    """The row that has changed it last in this batch; None if it is as it was before."""
    is_stored: bool = False
    """The store has a session with this start and end."""

    def takes(self, time: int) -> bool:
        """Whether it can take a row of this time and be the same session in the store, with the same start."""
        return self.start <= time and (time <= self.end or not self.is_stored)


@dataclass
class KeySessions:
    """The sessions of one key during a batch."""

    key: bytes
    untouched: list[tuple[int, int]]
    """Sessions that are too far away from the rows of the batch to matter."""
    live: list[Session]
    """The others, by their start."""
    removed: list[tuple[Session, int]] = field(default_factory=list)
    """Stored sessions that are now part of another one, and the row that has caused it."""

    def find(self, time: int, gap_ms: int, ends_from: int) -> list[Session]:
        """The sessions at most a gap away from this time that end at `ends_from` or later, by their end."""
        found = []
        place = len(self.live)
        if place and self.live[-1].start > time + gap_ms:
            place = bisect_right(self.live, time + gap_ms, key=_start_of)
        while place and self.live[place - 1].end >= time - gap_ms:
            place -= 1
            if self.live[place].end >= ends_from:
                found.append(self.live[place])
        return sorted(found, key=_end_of) if len(found) > 1 else found

    def replace(self, merged: Sequence[Session], time: int, content: Any, row: int) -> None:
        """Put one session in the place of these and of a row; none if it has no content."""
        if content is not None and len(merged) == 1 and merged[0].takes(time):
            (only,) = merged
            only.end, only.content, only.last_row = max(only.end, time), content, row
            return
        start, end = time, time
        for session in merged:
            start, end = min(start, session.start), max(end, session.end)
        new = Session(start, end, content, row)
        for session in merged:
            self._remove(session)
            if not session.is_stored:
                continue
            if content is not None and (session.start, session.end) == (start, end):
                new.is_stored = True
            else:
                self.removed.append((session, row))
        if content is not None:
            insort(self.live, new, key=_start_of)

    @property
    def has_one_new(self) -> bool:
        """There is only one session near, and the store does not have it as it is."""
        return len(self.live) == 1 and not self.live[0].is_stored

    def lengthen(self, time: int, content: Any, row: int) -> None:
        """Rows of the only session, the last of which has this time and number, have made this content of it."""
        (only,) = self.live
        only.end, only.content, only.last_row = max(only.end, time), content, row

    def _remove(self, session: Session) -> None:
        place = bisect_left(self.live, session.start, key=_start_of)
        while self.live[place] is not session:
            place += 1
        del self.live[place]

    @property
    def is_changed(self) -> bool:
        """There is a session that was not there before the batch, or the other way round."""
        return bool(self.removed) or any(not each.is_stored for each in self.live)

    @property
    def bounds(self) -> list[tuple[int, int]]:
        return sorted([*self.untouched, *((each.start, each.end) for each in self.live)])


def _start_of(session: Session) -> int:
    return session.start


def _end_of(session: Session) -> tuple[int, int]:
    return session.end, session.start


class SessionIndex:
    """The lists of sessions by key, in the closing store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self, times: Mapping[bytes, tuple[int, int]], gap_ms: int) -> list[KeySessions]:
        """The sessions of these keys. `times` has the first and the last time at which each of them has rows."""
        found = []
        for key, bounds in zip(times, self._read(list(times)), strict=True):
            first, last = times[key]
            near = [(start, end) for start, end in bounds if end >= first - gap_ms and start <= last + gap_ms]
            far = [each for each in bounds if each not in set(near)] if len(near) < len(bounds) else []
            live = [Session(start, end, session_key(key, end, start), is_stored=True) for start, end in sorted(near)]
            found.append(KeySessions(key, far, live))
        return found

    def save(self, keys: Iterable[KeySessions]) -> None:
        for each in keys:
            self._write(each.key, each.bounds)

    def forget(self, sessions: Sequence[bytes]) -> None:
        """Remove sessions, given by their keys in the first store."""
        gone: dict[bytes, set[tuple[int, int]]] = {}
        for key, end, start in map(split_session_key, sessions):
            gone.setdefault(key, set()).add((start, end))
        for key, bounds in zip(gone, self._read(list(gone)), strict=True):
            self._write(key, [each for each in bounds if each not in gone[key]])

    def _read(self, keys: Sequence[bytes]) -> list[list[tuple[int, int]]]:
        values = self._store.get_many([_SESSIONS + key for key in keys])
        return [[(start, end) for start, end in orjson.loads(value or b"[]")] for value in values]

    def _write(self, key: bytes, bounds: Sequence[tuple[int, int]]) -> None:
        self._store.put(_SESSIONS + key, orjson.dumps(bounds) if bounds else None)
