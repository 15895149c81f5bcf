"""What the streams and tables of one app share while it is built: labels, names, sources, and what has effects."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.streams.columns import Analyser
from ottla.streams.errors import TopologyError
from ottla.streams.graph import Node, Sink, Source, walk
from ottla.streams.options import check_topic_name

if TYPE_CHECKING:
    from ottla.streams.app import App

_INTERNAL: Final = re.compile(r".*-(changelog|repartition|rows(-\d+)?)")
"""How the names of internal topics end."""


class Topology:
    """The graph of an app while it grows."""

    def __init__(self, app: "App") -> None:
        self.app = app
        self.analyser = Analyser(lambda: app.spark)
        self.roots: list[Node] = []
        """Nodes that have an effect: sinks, stores that can be queried, and functions that peek."""
        self._labels: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self._sources: dict[tuple[str, bool], Source] = {}

    def label(self, operator: str) -> str:
        """A label for the next step of this kind, such as `filter-3`."""
        self._labels[operator] += 1
        return f"{operator}-{self._labels[operator]}"

    def add_root(self, node: Node) -> None:
        self.roots.append(node)

    def claim_name(self, operator: str, name: object) -> str:
        """The name of a store or a repartition topic, which no other step has. Topics are named after it."""
        if name is None or name == "":
            raise TopologyError(
                f"{operator}: state needs a name, by which it is found again: {operator}(..., name=...)"
            )
        check_topic_name(name, f"{operator}: name")
        assert isinstance(name, str)
        check_topic_name(f"{self.app.name}-{name}-repartition", f"{operator}: name={name!r}")
        if name in self._names:
            raise TopologyError(f"{operator}: the name {name!r} is taken by {self._names[name]}; choose another")
        if _INTERNAL.fullmatch(name):
            raise TopologyError(
                f"{operator}: name={name!r} ends like the name of an internal topic; choose another name="
            )
        self._names[name] = operator
        return name

    def check_topic(self, label: str, topic: object) -> None:
        """TopologyError unless it is a name for a topic of the user, and not one of the app's own."""
        check_topic_name(topic, label)
        assert isinstance(topic, str)
        if topic.startswith(f"{self.app.name}-") and _INTERNAL.fullmatch(topic):
            raise TopologyError(f"{label}: {topic!r} is named like an internal topic of this app; use the table itself")

    def add_source(self, source: Source) -> Source:
        """The source, or the one that already reads the topic in the same way."""
        for is_table in (False, True):
            known = self._sources.get((source.topic, is_table))
            if known is not None and not _reads_alike(known, source):
                raise TopologyError(
                    f"{source.label}: {known.label} reads the topic {source.topic!r} with another schema; "
                    f"read it once and use select() for each purpose"
                )
        place = (source.topic, source.is_table)
        known = self._sources.get(place)
        if known is None:
            if source.is_table:
                self.claim_name(source.label, source.name)
                self.add_root(source)
            self._sources[place] = source
            return source
        if (known.time, known.start, known.name) != (source.time, source.start, source.name):
            raise TopologyError(
                f"{source.label}: {known.label} reads the topic {source.topic!r} already, with another time=, start= "
                f"or name=; use what {known.label} has returned"
            )
        return known

    def sources_of_topic(self, topic: str) -> list[Source]:
        return [each for each in self._sources.values() if each.topic == topic]

    def sinks_of_topic(self, topic: str) -> list[Sink]:
        return [each for each in self.roots if isinstance(each, Sink) and each.topic == topic]


def _reads_alike(one: Source, other: Source) -> bool:
    return one.columns.equals(other.columns) and (one.key_format, one.value_format) == (
        other.key_format,
        other.value_format,
    )


def sources_of(node: Node) -> list[Source]:
    """The topics that a node's rows come from."""
    return [each for each in walk([node]) if isinstance(each, Source)]
