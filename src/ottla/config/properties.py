"""The syntax of Java's .properties files, such as server.properties.

One `key=value` per logical line; `=`, `:` or blanks separate; `#` and `!` start a comment line; an odd number of
backslashes at the end of a line continues it; `\\t \\n \\r \\f \\uXXXX` are escapes and any other escaped character
stands for itself. If a key occurs several times, the last value counts.
"""

import re
from collections.abc import Iterator, Mapping

from ottla.config.settings import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def read_properties(text: str) -> dict[str, str]:
    """The keys and values in the text of a properties file."""
    properties: dict[str, str] = {}
    for number, line in _join_lines(text):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError:
            raise ConfigError(f"line {number}: a \\u escape needs four hexadecimal digits") from None
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """The text of a properties file with these keys and values, which `read_properties` reads back."""
    lines = []
    for key, value in properties.items():
        text = _escape(value)
        lines.append(f"{re.sub('[ :=#!]', _protect, _escape(key))}={_protect(text[:1])}{text[1:]}\n")
    return "".join(lines)


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\\\")
    for letter, control in _ESCAPES.items():
        escaped = escaped.replace(control, f"\\{letter}")
    return escaped


def _protect(found: "str | re.Match[str]") -> str:
    text = found if isinstance(found, str) else found[0]
    return f"\\{text}" if text in (" ", ":", "=", "#", "!") else text


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    pending = ""
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        if _ends_with_continuation(line):
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _ends_with_continuation(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:position], rest


def _unescape(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[0] == "u":
            if len(escaped) < 5:
                raise ValueError(escaped)
            return chr(int(escaped[1:], 16))
        return _ESCAPES.get(escaped, escaped)

    unescaped = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replacement, text)
    # Java writes a character outside of the basic plane as two escapes, a surrogate pair.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
