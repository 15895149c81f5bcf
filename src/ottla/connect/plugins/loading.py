"""Plug-ins of users: classes that derive from `Source` or `Sink`.

`plugin.path` of the worker's properties names Python files, or directories of them, separated by commas. Each such
class in them can be named by its class name. A class in an installed package is named `package.module:Class`.
"""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from ottla.connect.connector import Connector, Sink, Source
from ottla.connect.errors import BadConfig
from ottla.connect.plugins.registry import Plugin, PluginType


def load_plugin_path(given: str) -> Iterator[Plugin]:
    """The connectors in all files of `plugin.path`. BadConfig names a file that cannot be run."""
    for text in filter(None, map(str.strip, given.split(","))):
        place = Path(text)
        if place.is_dir():
            files = sorted(place.glob("*.py"))
        elif place.is_file():
            files = [place]
        else:
            raise BadConfig(f"plugin.path: {text} does not exist")
        for file in files:
            yield from _find_connectors(file)


def find_installed(name: str) -> Plugin | None:
    """The connector `module:Class` of an installed package; None if the name has another form or finds none."""
    module_name, _, class_name = name.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), class_name]):
        return None
    try:
        found = getattr(import_module(module_name), class_name, None)
    except ImportError:
        return None
    return _make_plugin(name, found) if _is_connector(found) else None


def _find_connectors(file: Path) -> Iterator[Plugin]:
    module = _run_file(file)
    for name, found in vars(module).items():
        if _is_connector(found) and found.__module__ == module.__name__:
            yield _make_plugin(name, found)


def _run_file(file: Path) -> ModuleType:
    """The module is not in sys.modules, so its classes travel to Spark's workers whole. Modules beside it can be
    imported, also by Spark's workers."""
    directory = str(file.resolve().parent)
    if directory not in sys.path:
        sys.path.append(directory)
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*paths, directory)))
    module = ModuleType(f"__ottla_plugin_{file.stem}__")
    module.__file__ = str(file)
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    except Exception as error:
        raise BadConfig(f"plugin.path: {file}: {type(error).__name__}: {error}") from error
    return module


def _is_connector(found: Any) -> TypeGuard[type[Connector]]:
    return isinstance(found, type) and issubclass(found, Source | Sink) and not isabstract(found)


def _make_plugin(name: str, found: type[Connector]) -> Plugin:
    kind = PluginType.SOURCE if issubclass(found, Source) else PluginType.SINK
    return Plugin(name, kind, found.version, lambda: found)
