"""When something that is done every so many seconds is due."""

from collections.abc import Mapping
from typing import Any


class Timer:
    """Of the settings `<name>.enabled` and `<name>.interval.seconds`. It is due at once, then after each interval."""

    def __init__(self, config: Mapping[str, Any], name: str, *, once_at_least: bool = False) -> None:
        self._is_enabled: bool = config[f"{name}.enabled"]
        self._interval_s: int = config[f"{name}.interval.seconds"]
        self._once_at_least = once_at_least
        self._done_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        if self._done_s is None:
            return self._is_enabled or self._once_at_least
        return self._is_enabled and now_s >= self._done_s + self._interval_s

    def note_done(self, now_s: float) -> None:
        self._done_s = now_s
