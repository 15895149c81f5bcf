"""Windows over event time: which ones a row belongs to, and when they are closed. All times are in milliseconds."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ottla.streams.calls import operator
from ottla.streams.errors import TopologyError

Duration = str | int | timedelta
"""A text such as "30 seconds", a number of milliseconds, or a timedelta."""

START: Final = "window_start"
END: Final = "window_end"
"""Columns of the key of a windowed table: timestamps, the first moment of the window and the first one after it. Of a
session they are the times of its first and its last row, as in Kafka Streams."""

_UNITS_MS = {"ms": 1, "millisecond": 1, "s": 1000, "second": 1000, "m": 60_000, "min": 60_000, "minute": 60_000}
_UNITS_MS |= {"h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000, "week": 604_800_000}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", re.IGNORECASE)


def parse_duration_ms(duration: Duration, what: str) -> int:
    """TopologyError, which begins with `what`, if it is no duration."""
    if isinstance(duration, timedelta):
        found = round(duration.total_seconds() * 1000)
    elif isinstance(duration, int) and not isinstance(duration, bool):
        found = duration
    else:
        parts = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
        unit = None if parts is None else _UNITS_MS.get(parts[2].lower(), _UNITS_MS.get(parts[2].lower() + "s"))
        if parts is None or unit is None:
            raise TopologyError(f"{what}: {duration!r} is not a duration such as '30 seconds', '5 minutes' or '1 day'")
        found = round(float(parts[1]) * unit)
    if found < 0:
        raise TopologyError(f"{what}: {duration!r} is below zero")
    return found


@dataclass(frozen=True)
class Window:
    """kind: tumbling, hopping or session."""

    kind: str
    size_ms: int
    """Of a session window: the longest gap between two rows of a session."""
    advance_ms: int
    grace_ms: int = 0
    close_idle_ms: int | None = None


@operator
def tumbling(size: Duration, *, grace: Duration = 0, close_idle: Duration | None = None) -> Window:
    """Windows of one size, one after the other, the first of which begins at the epoch."""
    size_ms = _positive(size, "tumbling window: size")
    return Window("tumbling", size_ms, size_ms, *_closing("tumbling window", grace, close_idle))


@operator
def hopping(size: Duration, advance: Duration, *, grace: Duration = 0, close_idle: Duration | None = None) -> Window:
    """Windows of one size that begin every `advance`, so that a row may belong to several of them."""
    size_ms, advance_ms = _positive(size, "hopping window: size"), _positive(advance, "hopping window: advance")
    if advance_ms > size_ms:
        raise TopologyError("hopping window: advance is larger than the size, rows between two windows would be lost")
    return Window("hopping", size_ms, advance_ms, *_closing("hopping window", grace, close_idle))


@operator
def session(gap: Duration, *, grace: Duration = 0, close_idle: Duration | None = None) -> Window:
    """Windows that last as long as rows of a key come at most `gap` apart."""
    gap_ms = _positive(gap, "session window: gap")
    return Window("session", gap_ms, gap_ms, *_closing("session window", grace, close_idle))


def _positive(duration: Duration, what: str) -> int:
    found = parse_duration_ms(duration, what)
    if not found:
        raise TopologyError(f"{what}: it must be above zero")
    return found


def _closing(what: str, grace: Duration, close_idle: Duration | None) -> tuple[int, int | None]:
    idle_ms = None if close_idle is None else parse_duration_ms(close_idle, f"{what}: close_idle")
    return parse_duration_ms(grace, f"{what}: grace"), idle_ms
