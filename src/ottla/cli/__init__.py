"""`ottla`: the command line. Each command is a module that is imported only when it is run, so starting stays quick.

A command ends with 0 when it did what was asked, 2 when it was asked wrongly, 1 when something stood in its way,
and says why in one line on stderr.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from importlib import import_module

from ottla import __version__
from ottla.cli.refusal import Refusal

STARTED_S = time.perf_counter()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        status: int = import_module(f"ottla.cli.{options.command}").run(options)
    except Refusal as refusal:
        print(f"ottla: {refusal}", file=sys.stderr)
        return refusal.status
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ottla", description="An event streaming platform that speaks Kafka.")
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="start a broker", description="Start a broker and serve until stopped."))
    _add_demo(commands.add_parser("demo", help="watch a broker at work, then try it yourself"))
    return parser


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="where topics are kept (default: ~/.local/share/ottla)")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes a free one (default: 9092)")
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 lets other machines in (default: localhost)")
    parser.add_argument("--config", metavar="FILE", help="settings in Kafka's server.properties format")
    parser.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="KEY=VALUE",
        help="one setting by Kafka's name; stronger than everything else, and may be repeated",
    )
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"),
        help="how much is told on stderr (default: info)",
    )


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = "Start a broker in a temporary directory, send records through it, check them, leave it up."
    parser.add_argument("--seconds", type=float, default=5.0, help="how long records are produced (default: 5)")
    parser.add_argument("--record-bytes", type=int, default=200, help="size of a record's value (default: 200)")
