"""Compares the answers of two brokers, without the fields in which every broker is different."""

from collections.abc import Iterator
from typing import Any

from ottla.wire.message import Message

OWN = frozenset(  # fields that each broker has its own values for
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


def strip_own_fields(value: Any, own: frozenset[str] = OWN) -> Any:
    """The fields of a message as plain values, without those in `own`. Lists are sorted, as their order may differ."""
    if isinstance(value, Message):
        return tuple(
            (row[0], strip_own_fields(getattr(value, row[0]), own)) for row in value.FIELDS if row[0] not in own
        )
    if isinstance(value, list):
        return sorted((strip_own_fields(each, own) for each in value), key=repr)
    return value


def find_differences(theirs: Any, ours: Any, own: frozenset[str] = OWN) -> list[str]:
    """One line for each field in which the two answers differ."""
    first, second = (dict(flatten(strip_own_fields(each, own))) for each in (theirs, ours))
    return [
        f"{place}: {first.get(place, 'nothing')!r}, not {second.get(place, 'nothing')!r}"
        for place in dict.fromkeys((*first, *second))
        if first.get(place) != second.get(place)
    ]


def flatten(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value in the result of `strip_own_fields`, with its path."""
    if isinstance(value, tuple):
        name = dict(value).get("name")
        for key, inner in value:
            yield from flatten(inner, f"{place}[{name}].{key}" if name else f"{place}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            named = isinstance(inner, tuple) and dict(inner).get("name")
            yield from flatten(inner, place if named else f"{place}[{number}]")
    else:
        yield place, value
