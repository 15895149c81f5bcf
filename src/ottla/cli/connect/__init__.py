"""`ottla connect up|list|create|...`: workers of Kafka Connect, and their connectors.

running.py       up: runs a worker
progress.py      the line on its terminal
foreground.py    what commands that run workers share
asking.py        asks the REST API of a worker
connectors.py    list, status, create, pause, resume, stop, restart and delete
offsets.py       offsets: shows, changes and resets them
plugins.py       plugins and validate: what is installed, and whether a configuration is right
"""

import argparse
import os
from importlib import import_module
from typing import Final

from ottla.cli.numbers import parse_port
from ottla.cli.output import add_format_argument

URL: Final = "http://127.0.0.1:8083"
URL_VARIABLE: Final = "OTTLA_CONNECT"

_HOMES: Final = {
    "up": "running",
    "offsets": "offsets",
    "plugins": "plugins",
    "validate": "plugins",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(name: str, purpose: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(
            name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}."
        )
        if name != "up":
            default = os.environ.get(URL_VARIABLE) or URL
            made.add_argument(
                "--url", default=default, metavar="URL", help=f"the worker (default: ${URL_VARIABLE} or {URL})"
            )
        return made

    _add_up(add("up", "run a worker: alone, or with group.id as a member of a group"))
    add_format_argument(add("list", "list connectors and their states"))
    for name, purpose in (
        ("status", "show the state of a connector and of its tasks"),
        ("pause", "let a connector wait; it keeps its tasks"),
        ("resume", "let a connector that is paused or stopped go on"),
        ("stop", "stop a connector; its configuration and its offsets stay"),
        ("delete", "delete a connector; its offsets stay"),
    ):
        made = add(name, purpose)
        made.add_argument("name", metavar="CONNECTOR")
        if name == "status":
            add_format_argument(made)
    restart = add("restart", "restart a connector and its tasks")
    restart.add_argument("name", metavar="CONNECTOR")
    restart.add_argument("--only-failed", action="store_true", help="only what has failed")
    for name, purpose in (
        ("create", "create a connector, or change its configuration"),
        ("validate", "check a configuration without creating a connector"),
    ):
        made = add(name, purpose)
        made.add_argument("file", metavar="FILE", nargs="?", help="JSON or properties; - is standard input")
        made.add_argument(
            "--set",
            action="append",
            default=[],
            dest="settings",
            metavar="KEY=VALUE",
            help="a setting; may be repeated",
        )
    _add_offsets(add("offsets", "show the offsets of a connector, or change those of a stopped one"))
    plugins = add("plugins", "list what is installed, or the settings of one plug-in")
    plugins.add_argument("name", nargs="?", metavar="PLUGIN")
    plugins.add_argument("--all", action="store_true", help="also converters, transformations and predicates")
    add_format_argument(plugins)


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("connectors", metavar="CONNECTOR", nargs="*", help="connectors to create: JSON or properties")
    parser.add_argument("--config", metavar="FILE", help="the worker's properties, as Kafka Connect has them")
    parser.add_argument("-b", "--bootstrap", metavar="HOST:PORT", help="bootstrap.servers of the worker")
    parser.add_argument("--port", type=parse_port, help="port of the REST API on 127.0.0.1 (default: 8083)")
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: local[*])")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="any property of the worker, such as group.id=etl; may be repeated",
    )
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="(default: info)"
    )


def _add_offsets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CONNECTOR")
    parser.add_argument("--reset", action="store_true", help="forget all offsets")
    parser.add_argument("--from", dest="file", metavar="FILE", help='set offsets from JSON: {"offsets": [...]}')
    add_format_argument(parser)


def run(options: argparse.Namespace) -> int:
    module = import_module(f"ottla.cli.connect.{_HOMES.get(options.action, 'connectors')}")
    status: int = getattr(module, f"run_{options.action}")(options)
    return status
