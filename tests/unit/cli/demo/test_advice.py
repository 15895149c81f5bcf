"""The commands that the demo suggests can be typed as they stand."""

import json
import re
import shlex

import pytest

from ottla.cli import COMMANDS, command_parser
from ottla.cli.demo.advice import after_the_exchange, after_the_story
from ottla.cli.demo.shop import OPENING_MS

COMMAND = re.compile(r"\.venv/bin/ottla (.*)$", re.MULTILINE)


@pytest.mark.parametrize(
    "text", [after_the_story("localhost:1", "http://localhost:2", OPENING_MS), after_the_exchange("localhost:1")]
)
def test_the_suggested_commands_exist(text: str) -> None:
    # All except `up` name the broker. The parser would end with an error for a wrong command.
    commands = [shlex.split(command) for command in COMMAND.findall(text)]
    assert len(commands) >= 5
    for command in commands:
        options = command_parser(COMMANDS).parse_args(command)
        assert command == ["up"] or options.bootstrap == "localhost:1"


def test_the_suggested_order_is_valid() -> None:
    # The order is JSON, and has the current time of the shop.
    found = re.search(r"echo '(.*)' \|", after_the_story("localhost:1", "http://localhost:2", OPENING_MS))
    assert found is not None
    assert json.loads(found[1])["at"] == "2026-01-05T09:00:00.000Z"
