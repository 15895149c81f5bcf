"""JSON as people read it, with every digit as it was written: numbers are kept as text, never as floating point."""

import json
import re
from typing import Any

DEPTH_MAX = 100
_INDENT = "  "
_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_SCALAR = re.compile(r'".*|-?\d[\d.eE+-]*|true|false|null', re.DOTALL)


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


def write(document: Any, *, indented: bool = True, most: int | None = None) -> str:
    """The document as text. Numbers of Python are written with all their digits, bytes as text or hexadecimal. With
    `most`, no more than so many characters of it, from the beginning.

    Documents may be nested deeper than Python's functions, so what is left to write is kept in a list.
    """
    written: list[str] = []
    left: list[str | tuple[Any, int]] = [(document, 0)]
    """Texts, and values with their depths; the last comes first."""
    length = 0
    while left and (most is None or length < most):
        following = left.pop()
        if isinstance(following, str):
            written.append(following)
            length += len(following)
            continue
        value, depth = following
        if isinstance(value, dict):
            pairs = [(f"{json.dumps(str(name), ensure_ascii=False)}: ", each) for name, each in value.items()]
            left += reversed(_wrap("{", "}", pairs, indented, depth))
        elif isinstance(value, list | tuple):
            left += reversed(_wrap("[", "]", [("", each) for each in value], indented, depth))
        else:
            written.append(write_scalar(value))
            length += len(written[-1])
    return "".join(written)[:most]


def indent(text: str) -> str | None:
    """The text of an object or an array, which may end anywhere, with line breaks and indents; None if it is no JSON.

    The text is not parsed: a long document costs as much as the beginning that is given here. Everything but the spaces
    between its tokens stays as it is written.
    """
    tokens = _TOKEN.findall(text)
    if not tokens or tokens[0] not in "{[":
        return None
    written: list[str] = []
    depth, before = 0, ""
    for number, token in enumerate(tokens):
        inner = "\n" + _INDENT * depth if depth <= DEPTH_MAX else ""
        if token in "}]":
            depth -= 1
            written.append(token if before in "{[" or depth >= DEPTH_MAX else "\n" + _INDENT * depth + token)
        elif token == ":":
            written.append(": ")
        elif token == ",":
            written.append("," if inner else ", ")
        else:
            is_scalar = token not in "{["
            if is_scalar and not _SCALAR.fullmatch(token) and number + 1 < len(tokens):
                return None
            if before and before not in "{[,:":  # two values without a comma between them
                return None
            written.append(token if before in ":" else inner + token)
            depth += not is_scalar
        if depth < 0:
            return None
        before = token
    return "".join(written)


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


def _wrap(
    opening: str, closing: str, items: list[tuple[str, Any]], indented: bool, depth: int
) -> list[str | tuple[Any, int]]:
    """An object or an array: texts, and the values between them. An item has the text before its value."""
    if not items:
        return [opening + closing]
    inner = "\n" + _INDENT * (depth + 1) if indented and depth < DEPTH_MAX else ""
    between = f",{inner}" if inner else ", "
    found: list[str | tuple[Any, int]] = []
    for number, (before, value) in enumerate(items):
        found += [(between if number else opening + inner) + before, (value, depth + 1)]
    found.append(("\n" + _INDENT * depth if inner else "") + closing)
    return found
