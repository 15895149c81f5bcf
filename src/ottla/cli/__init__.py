"""`ottla`: the command line. Each command is a module that is imported only when it is run, so starting stays quick.

A command's module has `add_arguments(parser)` and `run(options)`, which returns the exit status. A command ends with
0 when it did what was asked, 2 when it was asked wrongly, 1 when something stood in its way, and says why in one line
on stderr. Ctrl-C ends it quietly with 130; a reader that has seen enough (`| head`) is no trouble at all.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Collection, Sequence
from importlib import import_module
from signal import SIGINT
from typing import Any, NoReturn

from ottla import __version__
from ottla.cli.command_error import FAILURE, USAGE_ERROR, CommandError

STARTED_S = time.perf_counter()
INTERRUPTED = 128 + SIGINT
GARBAGE_THRESHOLD = 20_000  # imports make what stays, requests what goes at once: look for garbage rarely

COMMANDS = {
    "up": "start a broker",
    "demo": "watch a broker at work, then try it yourself",
    "topic": "create, list, describe, alter, trim and delete topics",
    "produce": "send records from standard input or files",
    "consume": "print the records of a topic",
    "sql": "query topics with SQL, on Spark",
    "group": "list, describe, reset and delete consumer groups",
    "txn": "list and describe transactions, find and end hanging ones",
    "sink": "list and describe queries that write topics exactly once",
    "config": "read and change settings of topics and brokers",
    "bench": "a quick load test",
    "log": "look into a broker's files and verify them, without a broker",
    "completion": "print a script that lets your shell complete these commands",
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    command = next((word for word in given if not word.startswith("-")), "")
    _open_missing_streams()
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        options = command_parser({command}).parse_args(given)
        status: int = import_module(f"ottla.cli.{options.command}").run(options)
        sys.stdout.flush()
        return status
    except CommandError as error:
        return _refuse(str(error), error.status)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:  # commands name the files they know of, so this is about what they print
        _discard_output()
        return _refuse(f"{error.filename or 'standard output'}: {error.strerror or error}", FAILURE)


def _refuse(reason: str, status: int) -> int:
    print(f"ottla: {reason}", file=sys.stderr)
    return status


def _discard_output() -> None:
    """What is left in the buffer cannot be written; Python would complain about it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_missing_streams() -> None:
    """A shell can start a command without them (`<&-`), and then Python has no objects for them either."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


class CommandParser(argparse.ArgumentParser):
    """Takes options before, after and between names; says in one line what is wrong, as everything else here does."""

    _mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._mixing or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._mixing = True  # the call below comes back to this method, once for options and once for names
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")


def command_parser(wanted: Collection[str]) -> CommandParser:
    """The whole tree of commands, but only the wanted ones with their arguments: those have to be imported."""
    parser = CommandParser(prog="ottla", description="An event streaming platform that speaks Kafka.")
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name in wanted:
            import_module(f"ottla.cli.{name}").add_arguments(command)
    return parser
