"""Runs commands of `ottla` without a start of Python for each (`fork_server.py`): a page has dozens of them.

Commands that run on get a Python of their own, because whoever started the script sends signals to it.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fork_server import HAND_OVER, run_fork_server

RUNNING_ON = ("up", "console", "demo")
COMMANDS = (
    *("topic", "produce", "consume", "group", "txn", "sink", "config", "quota", "profile", "certificates"),
    *("generate", "stream", "cluster", "kafka", "doctor", "bench", "log", "completion", "acl", "user"),
    *("topic_reader", "group_reader", "topic_description", "topic_trim", "group_description", "record_output"),
)
CLIENTS = ("ottla.client.client", "ottla.client.groups", "ottla.client.transactions", "ottla.streams.errors")
IMPORTED = (*CLIENTS, *(f"ottla.cli.{name}" for name in COMMANDS))
"""Others are imported when a command needs them."""

SCRIPT = """#!{python} -IS
import os, signal, socket, struct, sys
{hand_over}
words = sys.argv[1:]
if words and words[0] in {running_on}:
    os.execv("{python}", ["{python}", "-m", "ottla", *words])
hand_over("{path}", words, [0, 1, 2])
"""


class CommandServer:
    """The server, while it runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write_script(self, script: Path) -> None:
        """Write an executable that does what `ottla` does."""
        names = {"python": sys.executable, "path": self._path, "hand_over": HAND_OVER, "running_on": RUNNING_ON}
        script.write_text(SCRIPT.format(**names))
        script.chmod(0o755)


@contextmanager
def run_command_server() -> Iterator[CommandServer]:
    with run_fork_server("tests.clients.command_server") as path:
        yield CommandServer(path)


def run(words: Sequence[str], connections: Sequence[int]) -> int:
    """The command, in a process of its own."""
    from ottla.cli import main

    return main(words)
