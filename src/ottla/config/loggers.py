"""Levels of this process's loggers, looked at and changed while it runs, by the level names of Kafka's log4j."""

import logging

from ottla.config.settings import ConfigError, nearest

ROOT = "root"
TRACE = 5

LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


def levels() -> dict[str, str]:
    """Every logger that was asked for by now, and those above them, with the level that holds for it."""
    names = sorted(logging.root.manager.loggerDict)
    return {ROOT: _shown(logging.root), **{name: _shown(logging.getLogger(name)) for name in names}}


def check_level(name: str, level: str | None) -> None:
    """A level to set, or None to follow the logger above; ConfigError says why that cannot be."""
    known = (ROOT, *logging.root.manager.loggerDict)
    if name not in known:
        raise ConfigError(f"there is no logger {name!r}{nearest(name, known)}")
    if level is not None and level not in LEVELS:
        raise ConfigError(f"{name}: {level!r} is not one of {', '.join(LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    check_level(name, level)
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _shown(logger: logging.Logger) -> str:
    """The quietest of Kafka's levels that lets through all that the logger does."""
    level = logger.getEffectiveLevel()
    return next((name for name, number in LEVELS.items() if number <= level), "TRACE")
