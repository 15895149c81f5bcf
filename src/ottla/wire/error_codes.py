"""Which errors an answer tells: every error code other than zero in a response, wherever in it they stand.

Each class gets a function of its own, straight code with a loop for each list on the way to a code, compiled when it is
first asked for. Every answer is looked at, and nearly all of them tell nothing: that look has to cost little. Whoever
puts a structure into an answer as bytes (`schema.written`) sees to it that it tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire.message import Message, fields_of, structure_of

NAMES = ("error_code", "partition_error_code")

Finder = Callable[[Any], list[int]]

_finders: dict[type[Message], Finder | None] = {}


def finder(message_class: type[Message]) -> Finder | None:
    """What finds the codes of such a response; None if it has no place for any."""
    if message_class not in _finders:
        lines = _search(message_class, "message", 1)
        _finders[message_class] = _compiled(lines) if lines else None
    return _finders[message_class]


def error_codes(response: Message) -> list[int]:
    find = finder(type(response))
    return [] if find is None else find(response)


def _search(message_class: type[Message], source: str, depth: int) -> list[str]:
    """Lines that put the codes in `source` and below it into `found`."""
    margin = "    " * depth
    lines: list[str] = []
    for field in fields_of(message_class):
        value = f"{source}.{field.name}"
        if field.name in NAMES:
            lines += [f"{margin}if {value}:", f"{margin}    found.append({value})"]
        elif field.is_structure:
            element = f"element{depth}"
            below = _search(structure_of(message_class, field.element), element, depth + 1)
            if below:
                elements = f"{value} or ()" if field.is_array else f"() if {value} is None else ({value},)"
                lines += [f"{margin}for {element} in {elements}:"]
                if field.is_array:
                    lines += [f"{margin}    if {element}.__class__ is bytes:", f"{margin}        continue"]
                lines += below
    return lines


def _compiled(lines: list[str]) -> Finder:
    names: dict[str, Any] = {}
    exec("\n".join(("def find(message):", "    found = []", *lines, "    return found")), names)
    find: Finder = names["find"]
    return find
