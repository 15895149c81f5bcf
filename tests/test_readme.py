"""What README tells people to type: its commands are ones that there are, its test passes."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli import COMMANDS, command_parser
from ottla.testing import LocalBroker

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|[|(] ?)(?:\.venv/bin/)?ottla ([^|)#]+)")


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS.findall(README) if name == language]


def commands() -> list[str]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [found[1].strip() for line in lines for found in COMMAND.finditer(line)]


def test_commands_are_found() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize("command", commands())
def test_a_command_is_one_that_there_is(command: str) -> None:
    # With its arguments; a wrong one would end the parser.
    command_parser(COMMANDS).parse_args(shlex.split(command))


def test_the_test_works(ottla_broker: LocalBroker) -> None:
    # The one that shows the fixture.
    (snippet,) = (text for text in blocks("python") if "def test_" in text)
    names: dict[str, Callable[[LocalBroker], None]] = {}
    exec(snippet, names)
    names["test_orders_are_sent_again"](ottla_broker)
