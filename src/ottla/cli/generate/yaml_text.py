"""Writes plain data as YAML in block style, for people to read and change."""

import re
from collections.abc import Iterator, Mapping, Sequence

Data = str | int | float | bool | Mapping[str, "Data"] | Sequence["Data"]

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9 _./@+-]*(?<! )")
"""Text that needs no quotes: it cannot be taken for a number, and has no character that means something."""

_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


def format_yaml(data: Data) -> str:
    """Text of several lines has to end in a line feed."""
    return "".join(f"{line}\n" for line in _write(data, 0))


def _write(data: Data, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(value, str) and value.endswith("\n"):
                yield f"{indent}{key}: |"
                yield from (f"{indent}  {line}" for line in value.splitlines())
            elif _is_scalar(value):
                yield f"{indent}{key}: {format_scalar(value)}"
            else:
                yield f"{indent}{key}:"
                yield from _write(value, depth + 1)
    elif isinstance(data, Sequence) and not isinstance(data, str):
        for item in data:
            lines = [format_scalar(item)] if _is_scalar(item) else list(_write(item, depth + 1))
            yield f"{indent}- {lines[0].strip()}"
            yield from lines[1:]


def _is_scalar(value: Data) -> bool:
    return isinstance(value, str | int | float) or not value


def format_scalar(value: Data) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        return "{}" if isinstance(value, Mapping) else "[]"
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    escaped = value.replace("'", "''")
    return f"'{escaped}'"
