"""`ottla stream run FILE`: finds the App that a Python file makes, and runs it."""

import argparse
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.pairs import parse_pairs

if TYPE_CHECKING:
    from ottla.streams.app import App

_MODULE = "__ottla_app__"
"""The name of the file's module. It is not in sys.modules, so functions of the file travel to Spark's workers whole."""


def run_run(options: argparse.Namespace) -> int:
    from ottla.streams.errors import StreamsError
    from ottla.streams.options import override_options
    from ottla.streams.running.foreground import run_in_foreground

    given = parse_pairs(options.settings, "--set")
    try:
        override_options(given)
        app = find_app(options.file, options.app)
        app.start()
        print(f"app {app.name!r} is running, and answers on {app.http_address}", flush=True)
        run_in_foreground(app)
    except StreamsError as error:
        raise CommandError(str(error)) from None
    return 0


def find_app(path: str, name: str | None) -> "App":
    """The only App of a file, or the one with this name."""
    from ottla.streams.app import App

    found = {id(each): each for each in vars(load_file(path)).values() if isinstance(each, App)}
    chosen = [app for app in found.values() if name is None or app.name == name]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(sorted(app.name for app in found.values()))
    if not found:
        raise CommandError(f"{path}: no variable of the file is an App", USAGE_ERROR)
    if not chosen:
        raise CommandError(f"{path}: there is no app {name!r}; there are: {names}", USAGE_ERROR)
    raise CommandError(f"{path}: there are several apps: {names}; choose one with --app", USAGE_ERROR)


def load_file(path: str) -> ModuleType:
    """Run a Python file as a module. Modules beside it can be imported, also by Spark's workers."""
    from ottla.streams.errors import StreamsError

    with open(path, "rb") as file:
        source = file.read()
    try:
        code = compile(source, path, "exec")
    except (SyntaxError, ValueError) as error:
        raise CommandError(f"{path}: not a Python program: {error}", USAGE_ERROR) from None
    directory = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, directory)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(each for each in (directory, *paths) if each)
    module = ModuleType(_MODULE)
    module.__file__ = path
    try:
        exec(code, vars(module))
    except StreamsError:
        raise
    except Exception as error:
        raise CommandError(f"{path}: {type(error).__name__}: {error}") from error
    return module
