"""Plug-ins by name. A plug-in is imported when somebody uses it, so that a library it lacks breaks nothing else.

A plug-in has the class name that Kafka Connect's users write. Short names work as in Kafka Connect: the last part of
the class name, for a connector also without the word `Connector`: `FileStreamSource` for
`org.apache.kafka.connect.file.FileStreamSourceConnector`. A short name that several plug-ins share names none of them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import Any, Protocol

from ottla.connect.errors import BadConfig
from ottla.connect.settings.definition import Settings


class PluginType(Enum):
    """By the names that `GET /connector-plugins` shows, in its order."""

    SINK = "sink"
    SOURCE = "source"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"


CONNECTORS = (PluginType.SINK, PluginType.SOURCE)


class HasSettings(Protocol):
    @property
    def settings(self) -> Settings: ...


@dataclass(frozen=True)
class Plugin:
    class_name: str
    type: PluginType
    version: str
    load: Callable[[], Any] = field(compare=False)
    """The class of a connector, or whatever else has `settings`. BadConfig if it cannot be imported."""
    more_names: tuple[str, ...] = ()

    @property
    def settings(self) -> Settings:
        found: HasSettings = self.load()
        return found.settings

    @property
    def short_names(self) -> tuple[str, ...]:
        simple = self.class_name.rpartition(".")[2].rpartition(":")[2]
        pruned = simple.removesuffix("Connector") if self.type in CONNECTORS else simple
        return (simple, pruned or simple, *self.more_names)


def load_from(home: str) -> Callable[[], Any]:
    """A loader of `module:Class`."""

    def load() -> Any:
        module, _, name = home.partition(":")
        try:
            found = getattr(import_module(module), name)
        except ImportError as error:
            raise BadConfig(f"{home} cannot be imported: {error}") from error
        return found

    return load


class Registry:
    """In the order in which Kafka Connect lists plug-ins: by type, then by class name."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        order = list(PluginType)
        self._plugins = sorted(plugins, key=lambda plugin: (order.index(plugin.type), plugin.class_name))

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._plugins)

    def of_types(self, *types: PluginType) -> list[Plugin]:
        return [plugin for plugin in self._plugins if plugin.type in types]

    def find(self, name: str, *types: PluginType) -> Plugin | None:
        """The plug-in of a class name or an unambiguous short name, of any type if none is given."""
        candidates = self.of_types(*(types or PluginType))
        for plugin in candidates:
            if plugin.class_name == name:
                return plugin
        found = [plugin for plugin in candidates if name in plugin.short_names]
        return found[0] if len({plugin.class_name for plugin in found}) == 1 else None
