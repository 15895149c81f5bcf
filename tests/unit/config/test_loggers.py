"""Levels of loggers by Kafka's names. All tests of a process share the loggers, so each test leaves them unchanged."""

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
def test_every_level_can_be_set_and_shown(leaf: logging.Logger, level: str) -> None:
    """A level is set by name, shown by the same name, and takes effect."""
    set_level(NAME, level)
    assert read_levels()[NAME] == level
    assert leaf.getEffectiveLevel() == LEVELS[level]


def test_a_logger_without_a_level_follows_the_one_above(leaf: logging.Logger) -> None:
    """This includes a logger that nobody has used yet. None removes a level."""
    set_level("ottla.tests.levels", "ERROR")
    assert read_levels()[NAME] == "ERROR"
    set_level(NAME, "DEBUG")
    set_level(NAME, None)
    assert read_levels()[NAME] == "ERROR"


def test_levels_between_two_are_shown_as_the_louder_one(leaf: logging.Logger) -> None:
    """Python's levels may be any number."""
    leaf.setLevel(logging.INFO + 5)
    assert read_levels()[NAME] == "INFO"
    leaf.setLevel(1)
    assert read_levels()[NAME] == "TRACE"


def test_unknown_loggers_and_levels_are_refused(leaf: logging.Logger) -> None:
    """An unknown logger is refused with the nearest known name, and so is an unknown level. Nothing changes."""
    before = read_levels()
    with pytest.raises(ConfigError, match=rf"'{NAME}x'.*did you mean '{NAME}'"):
        check_level(f"{NAME}x", "INFO")
    with pytest.raises(ConfigError, match="'LOUD' is not one of"):
        set_level(NAME, "LOUD")
    assert read_levels() == before
    assert "root" in before
