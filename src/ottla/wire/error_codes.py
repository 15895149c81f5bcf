"""Finds the error codes in a response: all that are not zero, at any depth.

Each response class gets a function of its own, compiled on first use: straight code with a loop for each list on the
way to an error code. Every answer is searched and nearly none has an error, so the search must be cheap. A structure
that is put into an answer as bytes (`schema.write_structure`) is not searched and must not contain an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire.message import Message, fields_of, structure_of

NAMES = ("error_code", "partition_error_code")

Finder = Callable[[Any], list[int]]

_finders: dict[type[Message], Finder | None] = {}


def get_finder(message_class: type[Message]) -> Finder | None:
    """The function that finds the codes in such a response; None if the class has no error code."""
    if message_class not in _finders:
        lines = _search(message_class, "message", 1)
        _finders[message_class] = _compile(lines) if lines else None
    return _finders[message_class]


def find_error_codes(response: Message) -> list[int]:
    find = get_finder(type(response))
    return [] if find is None else find(response)


def _search(message_class: type[Message], source: str, depth: int) -> list[str]:
    """Lines of code that append the error codes in `source` and below it to `found`."""
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


def _compile(lines: list[str]) -> Finder:
    names: dict[str, Any] = {}
    exec("\n".join(("def find(message):", "    found = []", *lines, "    return found")), names)
    find: Finder = names["find"]
    return find
