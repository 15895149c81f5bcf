"""Levels of Python's loggers, by the names that Kafka Connect's REST API has for levels and for the root logger."""

import logging
from collections.abc import Callable
from typing import Final

from ottla.connect.worker.herder import BadRequest, LoggerLevel, NotFound

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": logging.DEBUG - 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}


class Loggers:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._modified_ms: dict[str, int] = {}
        self._levels_of_group: dict[str, str] = {}

    def list_levels(self) -> dict[str, LoggerLevel]:
        """The loggers that have a level of their own."""
        found = {ROOT: logging.getLogger()}
        for name in sorted(logging.root.manager.loggerDict):
            logger = logging.getLogger(name)
            if logger.level != logging.NOTSET:
                found[name] = logger
        return {name: self._describe(name, logger) for name, logger in found.items()}

    def get_level(self, name: str) -> LoggerLevel:
        if name != ROOT and name not in logging.root.manager.loggerDict:
            raise NotFound(f"Logger {name} not found.")
        return self._describe(name, _find(name))

    def set_level(self, name: str, level: str) -> list[str]:
        """Set the level of a logger and of those below it. Returns their names."""
        number = LEVELS.get(level.upper())
        if number is None:
            raise BadRequest(f"{level!r} is no level; there are {', '.join(LEVELS)}")
        known = [ROOT, *sorted(logging.root.manager.loggerDict)]
        names = [name, *(each for each in known if each.startswith(f"{name}."))]
        if name == ROOT:
            names = known
        for each in names:
            _find(each).setLevel(number)
            self._modified_ms[each] = self._now_ms()
        return names

    def set_once(self, name: str, level: str) -> None:
        """Set a level that the whole group has; does nothing if it was set before."""
        if self._levels_of_group.get(name) != level and level.upper() in LEVELS:
            self._levels_of_group[name] = level
            self.set_level(name, level)

    def _describe(self, name: str, logger: logging.Logger) -> LoggerLevel:
        number = logger.getEffectiveLevel()
        level = max((known for known in LEVELS.items() if known[1] <= number), key=lambda known: known[1], default=None)
        return LoggerLevel("TRACE" if level is None else level[0], self._modified_ms.get(name))


def _find(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)
