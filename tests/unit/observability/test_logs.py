"""Log lines: what they look like, and that nobody can forge one."""

import io
import logging
import re
from collections.abc import Callable
from unicodedata import category

from hypothesis import given
from hypothesis import strategies as st

from ottla.observability.logs import LineFormatter, fields, set_level

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ([A-Z]+) +(\S+): (.*)")


def written(log: Callable[[logging.Logger], None], name: str = "ottla.tests.lines") -> str:
    """The text that a logger of this name writes while `log` uses it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logger = logging.Logger(name)
    logger.addHandler(handler)
    log(logger)
    return stream.getvalue()


def test_a_line_has_time_level_name_message_and_fields() -> None:
    text = written(lambda log: log.warning("%d left", 3, extra=fields(topic="orders", partition=0, rack=None)))
    match = LINE.fullmatch(text.rstrip("\n"))
    assert match is not None
    assert match.groups() == ("WARN", "tests.lines", "3 left topic=orders partition=0")


def test_levels_have_the_names_of_kafka() -> None:
    def log(logger: logging.Logger) -> None:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
            logger.log(level, "")

    text = written(log)
    assert [line.split()[2] for line in text.splitlines()] == ["DEBUG", "INFO", "WARN", "ERROR", "FATAL"]


def test_a_field_that_looks_like_two_is_quoted() -> None:
    text = written(lambda log: log.info("x", extra=fields(client='a b="c\\', empty="")))
    assert text.endswith(r'x client="a b=\"c\\" empty=""' + "\n")


@given(st.text(st.characters(exclude_categories=[])))
def test_one_event_is_one_line_whatever_a_client_sends(text: str) -> None:
    # This holds for the message and for fields. No control sequence reaches a terminal, and any stream can encode the
    # line.
    line = written(lambda log: log.info("from %s", text, extra=fields(client=text)))
    assert len(line.splitlines()) == 1
    assert not any(category(letter) == "Cc" for letter in line[:-1])
    line.encode()


def test_the_lines_of_a_traceback_are_indented() -> None:
    # This includes lines of the error's own text, which cannot be mistaken for events.
    def log(logger: logging.Logger) -> None:
        try:
            raise ValueError("x\n2026-01-01 00:00:00.000 INFO  broker: forged \x1b[31m")
        except ValueError:
            logger.exception("it failed")

    first, *rest = written(log).splitlines()
    assert LINE.fullmatch(first)
    assert rest and all(line.startswith("    ") for line in rest)
    assert "\x1b" not in "".join(rest)
    assert any("forged \\x1b[31m" in line for line in rest)


def test_a_level_can_be_changed_while_the_process_runs() -> None:
    # The test calls the function that the broker's configuration calls.
    logger = logging.getLogger("ottla.tests.level")
    set_level("ottla.tests.level", "ERROR")
    assert not logger.isEnabledFor(logging.WARNING)
    set_level("ottla.tests.level", None)
    assert logger.level == logging.NOTSET
