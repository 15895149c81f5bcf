"""Ctrl-C and SIGTERM, noticed only where it is safe to leave.

An exception that a signal raises anywhere would also be raised between the start of a child and the block that ends it.
So the handler only takes a note, and whoever waits for something asks `check` in between.
"""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """Somebody wants the demo to end."""


class Interruption:
    """In force within its `with` block."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._before: dict[int, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> "Interruption":
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def number(self) -> int | None:
        """The signal, if there was one."""
        return self._signals[0] if self._signals else None

    @property
    def impatient(self) -> bool:
        """It was asked for a second time."""
        return len(self._signals) > 1

    def check(self) -> None:
        """Interrupted: it is time to leave."""
        if self._signals:
            raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
