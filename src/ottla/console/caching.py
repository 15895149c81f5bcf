"""Values that are read again when they are older than the reader accepts."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """One value. Of several threads that need a new one, one reads it and the others wait for it."""

    def __init__(
        self, read: Callable[[], T], monotonic_s: Callable[[], float], find_max_age_s: Callable[[T], float]
    ) -> None:
        """`find_max_age_s` says how old a value may be: one that takes long to read may be older."""
        self._read = read
        self._monotonic_s = monotonic_s
        self._find_max_age_s = find_max_age_s
        self._lock = Lock()
        self._kept: tuple[T, float] | None = None
        self.kept: T | None = None
        """What was read last, also if it is too old or forgotten."""

    def get(self, max_age_s: float | None = None) -> T:
        """The value, at most `max_age_s` old. Raises what reading it raises."""
        kept = self._fresh(max_age_s)
        if kept is not None:
            return kept[0]
        with self._lock:
            kept = self._fresh(max_age_s)
            if kept is None:
                kept = self._kept = self._read(), self._monotonic_s()
                self.kept = kept[0]
            return kept[0]

    def forget(self) -> None:
        """Read anew next time, because something was changed."""
        self._kept = None

    def _fresh(self, max_age_s: float | None) -> tuple[T, float] | None:
        kept = self._kept
        if kept is None:
            return None
        limit_s = self._find_max_age_s(kept[0]) if max_age_s is None else max_age_s
        return kept if self._monotonic_s() - kept[1] <= limit_s else None
