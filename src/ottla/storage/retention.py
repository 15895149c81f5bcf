"""Which segments at the front of a log are to be deleted: too old, or more than the log may hold.

A segment is as old as its newest record, and goes as a whole. A timestamp that is further ahead of the clock than the
topic lets producers be says nothing about age (a clock was wrong when it was made, or the settings were others), and
neither does a missing one: such a segment counts from the moment this process created or found it, so that one wrong
record does not keep a log for ever.

Uncommitted records stay, and so does everything from the first record of an open transaction on. The active segment is
deleted only together with all others; the log then rolls first, so that there always is an active one.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla.storage.segment import Segment
from ottla.storage.settings import LogSettings


class RetainedLog(Protocol):
    log_start_offset: int
    end_offset: int

    @property
    def settings(self) -> LogSettings: ...

    @property
    def segments(self) -> list[Segment]: ...

    @property
    def size(self) -> int: ...


class Expired(NamedTuple):
    """The segments to delete, and where the log begins without them."""

    old: Sequence[int]
    """Base offsets of the segments that are older than retention.ms."""
    excess: Sequence[int]
    """Base offsets of the segments that exceed retention.bytes."""
    log_start_offset: int
    with_active: bool


def find_expired(log: RetainedLog, up_to: int, now_ms: int) -> Expired | None:
    """Find the segments before `up_to` that retention deletes; None if there are none."""
    settings = log.settings
    if settings.retention_ms < 0 and settings.retention_bytes < 0:
        return None
    surplus = log.size - settings.retention_bytes if settings.retention_bytes >= 0 else -1
    old: list[int] = []
    excess: list[int] = []
    start, segments = 0, log.segments
    for index, segment in enumerate(segments):
        end = segments[index + 1].base_offset if index + 1 < len(segments) else log.end_offset
        if end > up_to or (index + 1 == len(segments) and not segment.size):
            break
        if end <= log.log_start_offset:
            surplus -= segment.size  # on its way out already
            continue
        if surplus >= segment.size:
            excess.append(segment.base_offset)
        elif 0 <= settings.retention_ms < now_ms - _find_newest(segment, settings, now_ms):
            old.append(segment.base_offset)
        else:
            break
        surplus -= segment.size
        start = end
    if not old and not excess:
        return None
    return Expired(old, excess, start, with_active=start > segments[-1].base_offset)


def _find_newest(segment: Segment, settings: LogSettings, now_ms: int) -> int:
    timestamp = segment.max_timestamp
    believable = timestamp >= 0 and timestamp - now_ms <= settings.timestamps_ahead_ms
    return timestamp if believable else segment.created_ms
