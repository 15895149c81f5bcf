"""What two brokers must agree on in an answer, whatever is each one's own."""

from collections.abc import Iterator
from typing import Any

from ottla.wire.message import Message

OWN = frozenset(
    (
        "cluster_id",
        "documentation",
        "error_message",
        "host",
        "log_dir",
        "port",
        "topic_id",
        "total_bytes",
        "usable_bytes",
    )
)


def essence(value: Any, own: frozenset[str] = OWN) -> Any:
    """A message without what is the broker's own; lists come in any order."""
    if isinstance(value, Message):
        return tuple((row[0], essence(getattr(value, row[0]), own)) for row in value.FIELDS if row[0] not in own)
    if isinstance(value, list):
        return sorted((essence(each, own) for each in value), key=repr)
    return value


def unlike(theirs: Any, ours: Any, own: frozenset[str] = OWN) -> list[str]:
    """Where the two differ, one line for each place."""
    first, second = (dict(leaves(essence(each, own))) for each in (theirs, ours))
    return [
        f"{place}: {first.get(place, 'nothing')!r}, not {second.get(place, 'nothing')!r}"
        for place in dict.fromkeys((*first, *second))
        if first.get(place) != second.get(place)
    ]


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value of an essence, with the names on the way to it."""
    if isinstance(value, tuple):
        name = dict(value).get("name")
        for key, inner in value:
            yield from leaves(inner, f"{place}[{name}].{key}" if name else f"{place}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            named = isinstance(inner, tuple) and dict(inner).get("name")
            yield from leaves(inner, place if named else f"{place}[{number}]")
    else:
        yield place, value
