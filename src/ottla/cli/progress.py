"""A progress bar for long work: one line on standard error that is drawn again and again, and removed at the end.

It is shown only if standard error is a terminal that can move its cursor, so pipes, files and logs never have it, and
only after SHOWN_AFTER_S, so that quick commands show nothing. Work whose end is not known has a counter in place of the
bar.
"""

import os
import sys
import time
from contextlib import suppress
from typing import Self

SHOWN_AFTER_S = 0.5
REFRESH_S = 0.1
BAR_WIDTH = 24
COLUMNS = 80
"""The width of a terminal that does not say how wide it is."""

CLEAR_LINE = "\r\x1b[K"


def is_watched() -> bool:
    """Whether a person sees what is drawn on standard error."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"


class ProgressLine:
    """Used as a context manager around the work. `show` is cheap enough to be called for every piece of it."""

    def __init__(self, what: str, total: float | None = None, *, is_shown: bool = True) -> None:
        self._what = what
        self._total = total
        self.is_shown = is_shown and is_watched()
        self._started_s = time.monotonic()
        self._next_s = self._started_s + SHOWN_AFTER_S
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.clear()

    def is_due(self) -> bool:
        """Whether the line is old. Callers for whom it is costly to find out how far they are ask this first."""
        return self.is_shown and time.monotonic() >= self._next_s

    def show(self, done: float, note: str = "") -> None:
        """Draw how much of the total is done. The note stands at the end of the line."""
        if not self.is_due():
            return
        now_s = time.monotonic()
        self._next_s = now_s + REFRESH_S
        self._is_drawn = True
        line = describe_progress(self._what, done, self._total, now_s - self._started_s, note)
        _draw(line[: _find_columns() - 1])

    def say(self, note: str) -> None:
        """Draw a line at once, for a step that has no measure."""
        if self.is_shown:
            self._is_drawn = True
            _draw(note[: _find_columns() - 1])

    def clear(self) -> None:
        """Remove the line, so that something else can be printed."""
        if self._is_drawn:
            self._is_drawn = False
            _draw("")


def describe_progress(what: str, done: float, total: float | None, elapsed_s: float, note: str) -> str:
    """`produce  [######------------------]  25%  1,000 records  0:30 left`."""
    if not total:
        return "  ".join(part for part in (what, note, f"{format_duration(elapsed_s)} so far") if part)
    share = min(max(done / total, 0.0), 1.0)
    full = int(share * BAR_WIDTH)
    left = f"{format_duration(elapsed_s / share * (1 - share))} left" if share > 0 else ""
    bar = f"[{'#' * full}{'-' * (BAR_WIDTH - full)}] {int(share * 100):3d}%"
    return "  ".join(part for part in (what, bar, note, left) if part)


def format_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _find_columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
    except (OSError, ValueError):
        return COLUMNS


def _draw(line: str) -> None:
    with suppress(OSError):  # the terminal is gone: what the command does is more important than the bar
        print(f"{CLEAR_LINE}{line}", end="", file=sys.stderr, flush=True)
