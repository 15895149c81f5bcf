"""`ottla stream run|list|describe|query|stop|reset`: apps of ottla.streams.

running.py      run: finds the App in a Python file and runs it
apps.py         list, describe and stop: apps that are registered in the cluster, and what they say about themselves
asking.py       query: rows of an app's stores
pages.py        the pages that a running app answers with
resetting.py    reset: deletes what an app has made, so that it begins anew
"""

import argparse
from importlib import import_module

from ottla.cli.client import create_action_adder
from ottla.cli.numbers import INT32_MAX, int_between
from ottla.cli.output import add_format_argument

_HOMES = {
    "run": "running",
    "list": "apps",
    "describe": "apps",
    "stop": "apps",
    "query": "asking",
    "reset": "resetting",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    add_format_argument(action("list", "list apps that run or have run"))
    describe = action("describe", "show the topology and the progress of an app")
    describe.add_argument("name", metavar="APP")
    add_format_argument(describe)
    query = action("query", "read rows of an app's store: one key, or all rows")
    query.add_argument("name", metavar="APP")
    query.add_argument("store", metavar="STORE")
    query.add_argument("key", nargs="*", metavar="KEY", help="the values of the key's columns")
    query.add_argument("--window", metavar="WHEN", help="the beginning of the window, in ISO 8601 or milliseconds")
    query.add_argument(
        "--limit", type=int_between(1, INT32_MAX), default=100, metavar="N", help="at most so many rows (default: 100)"
    )
    add_format_argument(query)
    stop = action("stop", "stop a running app gracefully")
    stop.add_argument("name", metavar="APP")
    reset = action("reset", "delete an app's internal topics, offsets and state, so that it begins anew")
    reset.add_argument("name", metavar="APP")
    reset.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    _add_run(parser)


def _add_run(parser: argparse.ArgumentParser) -> None:
    """`run` has no options of a client: the app itself says where its cluster is."""
    (actions,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    purpose = "run the app of a Python file until it is stopped"
    run = actions.add_parser("run", help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
    run.add_argument("file", metavar="FILE", help="a Python file that makes an ottla.streams.App")
    run.add_argument("--app", metavar="NAME", help="the app, if the file makes several")
    run.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="replace an option of the app, such as master, or a setting of Kafka or Spark; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    module = import_module(f"ottla.cli.stream.{_HOMES[options.action]}")
    status: int = getattr(module, f"run_{options.action}")(options)
    return status
