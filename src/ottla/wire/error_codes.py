"""Which errors an answer tells: every error code other than zero in a response, wherever in it they stand.

The places are found once per class, so that reading an answer that has none costs no more than a look at each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.wire.message import Message, fields_of, structure_of

NAMES = ("error_code", "partition_error_code")


class Places(NamedTuple):
    own: tuple[str, ...]
    lists: tuple[tuple[str, Places], ...]
    structures: tuple[tuple[str, Places], ...]


_found: dict[type[Message], Places] = {}


def places_in(message_class: type[Message]) -> Places:
    known = _found.get(message_class)
    if known is None:
        known = _found[message_class] = _search(message_class)
    return known


def _search(message_class: type[Message]) -> Places:
    own: list[str] = []
    lists: list[tuple[str, Places]] = []
    structures: list[tuple[str, Places]] = []
    for field in fields_of(message_class):
        if field.name in NAMES:
            own.append(field.name)
        elif field.is_structure:
            below = places_in(structure_of(message_class, field.element))
            if any(below):
                (lists if field.is_array else structures).append((field.name, below))
    return Places(tuple(own), tuple(lists), tuple(structures))


def error_codes(response: Message) -> Iterator[int]:
    return _codes(response, places_in(type(response)))


def _codes(message: Any, places: Places) -> Iterator[int]:
    for name in places.own:
        code = getattr(message, name)
        if code:
            yield code
    for name, below in places.lists:
        for element in getattr(message, name) or ():
            yield from _codes(element, below)
    for name, below in places.structures:
        element = getattr(message, name)
        if element is not None:
            yield from _codes(element, below)
