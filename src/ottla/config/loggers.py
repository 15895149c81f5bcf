"""Reads and changes the levels of the loggers of this process, with the level names of Kafka's log4j."""

import logging

from ottla.config.settings import ConfigError, suggest_name

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


def read_levels() -> dict[str, str]:
    """Every logger that exists, with the level in force."""
    names = sorted(logging.root.manager.loggerDict)
    return {ROOT: _find_level_name(logging.root), **{name: _find_level_name(logging.getLogger(name)) for name in names}}


def check_level(name: str, level: str | None) -> None:
    """ConfigError if the logger or the level does not exist. None means the level of the parent logger."""
    known = (ROOT, *logging.root.manager.loggerDict)
    if name not in known:
        raise ConfigError(f"there is no logger {name!r}{suggest_name(name, known)}")
    if level is not None and level not in LEVELS:
        raise ConfigError(f"{name}: {level!r} is not one of {', '.join(LEVELS)}")


def set_level(name: str, level: str | None) -> None:
    check_level(name, level)
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _find_level_name(logger: logging.Logger) -> str:
    """The highest of Kafka's levels that still logs everything that this logger does."""
    level = logger.getEffectiveLevel()
    return next((name for name, number in LEVELS.items() if number <= level), "TRACE")
