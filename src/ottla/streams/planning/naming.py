"""Names of subtopologies, stores and internal topics.

They are made from what the user has named, stores and topics, and never from the place of a step in the topology: a
filter that is added or removed leaves all names as they were, and with them state and positions.
"""

from collections.abc import Iterable, Sequence

from ottla.streams.graph import Node, Sink
from ottla.streams.planning.drafts import Draft


def changelog_of(app: str, store: str) -> str:
    return f"{app}-{store}-changelog"


def repartition_of(app: str, name: str) -> str:
    return f"{app}-{name}-repartition"


def rows_of(app: str, name: str, taken: Iterable[str]) -> str:
    """The name of a topic through which rows go to a step that Spark computes, or from it to a step with two inputs."""
    return number_name(f"{app}-{name}-rows", set(taken))


def name_below(nodes: Sequence[Node]) -> dict[int, str]:
    """For each node, by its id, the name of the nearest step below it that has one: a store, or a sink's topic.

    `nodes` has each node after its inputs.
    """
    names: dict[int, str] = {}
    for node in reversed(nodes):
        own = getattr(node, "name", None) or (_name_of_sink(node) if isinstance(node, Sink) else None)
        if own:
            names[id(node)] = own
        for parent in node.inputs:
            if id(node) in names:
                names[id(parent)] = names[id(node)]
    return names


def _name_of_sink(sink: Sink) -> str:
    return sink.topic or f"by-{sink.topic_column}"


def name_drafts(app: str, drafts: Sequence[Draft]) -> list[str]:
    """Names a subtopology by its first store, or else by the first topic it writes to or reads."""
    names: list[str] = []
    for draft in drafts:
        stores = list(draft.stores)
        written = [sink.topic.removeprefix(f"{app}-") for sink in draft.sinks if sink.topic is not None]
        read = [topic.removeprefix(f"{app}-") for topic in draft.topics]
        base = stores[0] if stores else f"{read[0]}-to-{written[0]}" if written else read[0]
        names.append(number_name(base, set(names)))
    return names


def number_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found
