"""The tutorial about Avro, as somebody goes through it: its commands print what it says."""

import re
from pathlib import Path

import ottla.testing
from tests.clients.command_server import CommandServer
from tests.clients.test_command_line import CommandLine
from tests.pages import fits, list_blocks
from tests.unit.client.shelf import Shelf, served

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "avro.md"
COMMAND = re.compile(r"^\$ ((?:.*\n)(?:> .*\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_the_commands_of_the_tutorial_print_what_it_says(tmp_path: Path, commands: CommandServer) -> None:
    with ottla.testing.broker() as broker, served(Shelf()) as registry:
        ottla_command = CommandLine(broker.bootstrap, tmp_path, commands)
        ottla_command.environment["OTTLA_CLIENT_SCHEMA_REGISTRY_URL"] = registry
        ottla_command.environment["OTTLA_CLIENT_ENABLE_IDEMPOTENCE"] = "false"
        done = 0
        for block in list_blocks(PAGE.read_text()):
            for command, expected in COMMAND.findall(block.text):
                if command.startswith("export "):
                    continue
                printed = ottla_command.shell(command.replace("\n> ", "\n"))
                assert fits(printed, expected), f"{command}\n{printed}"
                done += 1
        assert done > 8
