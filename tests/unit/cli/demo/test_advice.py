"""What the demo says to try next can be typed as it stands."""

import json
import re
import shlex

import pytest

from ottla.cli import COMMANDS, command_parser
from ottla.cli.demo.advice import after_the_exchange, after_the_story
from ottla.cli.demo.shop import OPENING_MS

COMMAND = re.compile(r"\.venv/bin/ottla (.*)$", re.MULTILINE)


@pytest.mark.parametrize("text", [after_the_story("localhost:1", OPENING_MS), after_the_exchange("localhost:1")])
def test_commands_are_ones_that_there_are(text: str) -> None:
    # All but `up` name the broker; a wrong one would end the parser.
    commands = [shlex.split(command) for command in COMMAND.findall(text)]
    assert len(commands) >= 5
    for command in commands:
        options = command_parser(COMMANDS).parse_args(command)
        assert command == ["up"] or options.bootstrap == "localhost:1"


def test_the_order_to_send_is_one() -> None:
    # It is of the time that it is in the shop, so that the pipeline still counts it.
    found = re.search(r"echo '(.*)' \|", after_the_story("localhost:1", OPENING_MS))
    assert found is not None
    assert json.loads(found[1])["at"] == "2026-01-05T09:00:00.000Z"
