"""Levels of loggers by Kafka's names, in one process with everybody else's: each test leaves them as they were."""

import logging
from collections.abc import Iterator

import pytest

from ottla.config import ConfigError
from ottla.config.loggers import LEVELS, check_level, read_levels, set_level

NAME = "ottla.tests.levels.leaf"


@pytest.fixture
def leaf() -> Iterator[logging.Logger]:
    logger = logging.getLogger(NAME)
    yield logger
    for name in (NAME, "ottla.tests.levels"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_comes_back(leaf: logging.Logger, level: str) -> None:
    """Set by name, seen by the same name, and in force."""
    set_level(NAME, level)
    assert read_levels()[NAME] == level
    assert leaf.getEffectiveLevel() == LEVELS[level]


def test_a_logger_without_a_level_follows_the_one_above(leaf: logging.Logger) -> None:
    """Also one that nobody has asked for by name yet; None takes a level away."""
    set_level("ottla.tests.levels", "ERROR")
    assert read_levels()[NAME] == "ERROR"
    set_level(NAME, "DEBUG")
    set_level(NAME, None)
    assert read_levels()[NAME] == "ERROR"


def test_levels_between_two_are_shown_as_the_louder_one(leaf: logging.Logger) -> None:
    """Python's levels are any number."""
    leaf.setLevel(logging.INFO + 5)
    assert read_levels()[NAME] == "INFO"
    leaf.setLevel(1)
    assert read_levels()[NAME] == "TRACE"


def test_refusals(leaf: logging.Logger) -> None:
    """A logger that is not there, with the nearest that is, and a level that is none; nothing has changed."""
    before = read_levels()
    with pytest.raises(ConfigError, match=rf"'{NAME}x'.*did you mean '{NAME}'"):
        check_level(f"{NAME}x", "INFO")
    with pytest.raises(ConfigError, match="'LOUD' is not one of"):
        set_level(NAME, "LOUD")
    assert read_levels() == before
    assert "root" in before
