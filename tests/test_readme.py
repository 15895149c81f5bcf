"""What README tells people to type: its commands are ones that there are, its test passes."""

import re
import shlex
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from ottla.cli import COMMANDS, command_parser
from ottla.testing import LocalBroker

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPERATORS = "|<>()"


def blocks(language: str, page: str = README) -> list[str]:
    return [text for name, text in BLOCKS.findall(page) if name == language]


def commands(page: str = README) -> list[list[str]]:
    """The words after `ottla`, wherever it stands in a line."""
    found: list[list[str]] = []
    for line in (line for block in blocks("sh", page) for line in block.splitlines()):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=OPERATORS)
        lexer.whitespace_split = True
        for is_operator, words in groupby(lexer, key=lambda word: not word.strip(OPERATORS)):
            name, *arguments = words
            if not is_operator and name.removeprefix(".venv/bin/") == "ottla":
                found.append(arguments)
    return found


def test_commands_are_found() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_a_command_is_one_that_there_is(arguments: list[str]) -> None:
    # With its arguments; a wrong one would end the parser.
    command_parser(COMMANDS).parse_args(arguments)


def test_the_test_works(ottla_broker: LocalBroker) -> None:
    # The one that shows the fixture.
    (snippet,) = (text for text in blocks("python") if "def test_" in text)
    names: dict[str, Callable[[LocalBroker], None]] = {}
    exec(snippet, names)
    names["test_orders_are_sent_again"](ottla_broker)
