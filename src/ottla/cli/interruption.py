"""Ctrl-C and SIGTERM for commands with child processes, which they end only where it is safe to leave.

An exception that a signal raises anywhere could also be raised between the start of a child process and the block that
ends it. So the handler usually only notes the signal. A block that waits and starts no process is put in `raising`:
there the signal raises Interrupted at once, out of a blocking call too.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The user wants the command to end."""


class Interruption:
    """Handles the signals within its `with` block."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._before: dict[int, Callable[..., Any] | int | None] = {}
        self._is_raising = False

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
        """There was a second signal."""
        return len(self._signals) > 1

    def check(self) -> None:
        """Raises Interrupted if there was a signal."""
        if self._signals:
            raise Interrupted

    @contextmanager
    def raising(self) -> Iterator[None]:
        """A signal raises Interrupted anywhere within this block, once, and at its beginning if it came before."""
        self._is_raising = True
        try:
            self.check()
            yield
        finally:
            self._is_raising = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        if self._is_raising:
            self._is_raising = False
            raise Interrupted
