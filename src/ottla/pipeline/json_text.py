"""JSON as people read it, with every digit as it was written: numbers are kept as text, never as floating point."""

import json
from typing import Any

DEPTH_MAX = 100
_INDENT = "  "


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class NotJson(ValueError):
    """The text is no JSON document."""


def parse(text: str) -> Any:
    """The document; its numbers are `Number`s. Raises NotJson."""
    try:
        return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)
    except (ValueError, RecursionError):
        raise NotJson from None


def write(document: Any, *, indented: bool = True, depth: int = 0) -> str:
    """The document as text. Numbers of Python are written with all their digits, bytes as text or hexadecimal."""
    if isinstance(document, dict):
        pairs = [
            f"{json.dumps(str(name), ensure_ascii=False)}: {write(value, indented=indented, depth=depth + 1)}"
            for name, value in document.items()
        ]
        return _wrap("{", "}", pairs, indented, depth)
    if isinstance(document, list | tuple):
        items = [write(value, indented=indented, depth=depth + 1) for value in document]
        return _wrap("[", "]", items, indented, depth)
    return write_scalar(document)


def write_scalar(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if value is None or isinstance(value, bool | str | int | float):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes | bytearray):
        return json.dumps(to_text(bytes(value)), ensure_ascii=False)
    return json.dumps(str(value), ensure_ascii=False)


def to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def find_field(document: Any, path: str) -> list[Any]:
    """The values at a path such as `customer.tags.0`; a name in a list looks into each of its items."""
    found = [document]
    for part in path.replace("[", ".").replace("]", "").split("."):
        if part in ("", "$"):
            continue
        following: list[Any] = []
        for value in found:
            if isinstance(value, dict) and part in value:
                following.append(value[part])
            elif isinstance(value, list) and part.isdecimal():
                following += value[int(part) : int(part) + 1]
            elif isinstance(value, list):
                following += [item[part] for item in value if isinstance(item, dict) and part in item]
        found = following
    return found


def _wrap(opening: str, closing: str, parts: list[str], indented: bool, depth: int) -> str:
    if not parts:
        return opening + closing
    if not indented or depth >= DEPTH_MAX:
        return opening + ", ".join(parts) + closing
    inner = "\n" + _INDENT * (depth + 1)
    return opening + inner + f",{inner}".join(parts) + "\n" + _INDENT * depth + closing
