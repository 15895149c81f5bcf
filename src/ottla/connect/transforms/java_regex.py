"""Java's regular expressions and replacements, as Python's `re` understands them."""

import re
from collections.abc import Callable
from typing import Final

from ottla.connect.errors import BadConfig

_POSIX: Final = {
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Lower": "a-z",
    "Upper": "A-Z",
    "Punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "Space": r" \t\n\x0b\f\r",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
    "IsAlphabetic": r"^\W\d_",
    "L": r"^\W\d_",
}
_CLASS: Final = re.compile(r"\\p\{(\w+)\}")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)


def compile_java(pattern: str) -> re.Pattern[str]:
    """BadConfig if the pattern is wrong, or uses what Python lacks."""
    translated = _QUOTED.sub(lambda found: re.escape(found[1]), pattern)
    translated = re.sub(r"\(\?<(?=[a-zA-Z])", "(?P<", translated)
    translated = re.sub(r"\\k<(\w+)>", r"(?P=\1)", translated)
    translated = translated.replace(r"\z", r"\Z") if r"\z" in translated else translated
    try:
        return re.compile(_translate_classes(translated), re.ASCII)
    except re.error as error:
        raise BadConfig(f"Invalid regex {pattern!r}: {error}") from None


def _translate_classes(pattern: str) -> str:
    """`\\p{Alpha}` as a set, or as a part of the set that it stands in."""

    def translate(found: re.Match[str]) -> str:
        members = _POSIX.get(found[1])
        if members is None or (members.startswith("^") and _is_in_set(pattern, found.start())):
            raise BadConfig(f"Invalid regex {pattern!r}: {found[0]} cannot be used here")
        return members if _is_in_set(pattern, found.start()) else f"[{members}]"

    return _CLASS.sub(translate, pattern)


def _is_in_set(pattern: str, end: int) -> bool:
    """Whether a set, `[...]`, is open at a place."""
    is_open, at = False, 0
    while at < end:
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            is_open = True
        elif pattern[at] == "]":
            is_open = False
        at += 1
    return is_open


def check_java_regex(name: str, value: str) -> None:
    """For settings: ValueError if the value is no regular expression."""
    try:
        compile_java(value)
    except BadConfig as error:
        raise ValueError(str(error)) from None


def compile_replacement(pattern: re.Pattern[str], text: str) -> Callable[[re.Match[str]], str]:
    """The function that makes the replacement of a match: `$1` and `${name}` are groups, a backslash takes a
    character's meaning away. BadConfig if there is no such group."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            if at + 1 == len(text):
                raise BadConfig(f"the replacement {text!r}: character to be escaped is missing")
            parts.append(text[at + 1])
            at += 2
        elif character == "$":
            group, at = _take_group(pattern, text, at + 1)
            parts.append(group)
        else:
            parts.append(character)
            at += 1
    return _Replacement(tuple(parts))


class _Replacement:
    def __init__(self, parts: tuple[str | int, ...]) -> None:
        self._parts = parts

    def __call__(self, found: re.Match[str]) -> str:
        return "".join(each if isinstance(each, str) else found[each] or "" for each in self._parts)


def _take_group(pattern: re.Pattern[str], text: str, at: int) -> tuple[int, int]:
    """The number of the group that is named here, and the place after its name."""
    named = re.compile(r"\{(\w+)\}").match(text, at)
    if named:
        if named[1] not in pattern.groupindex:
            raise BadConfig(f"the replacement {text!r}: No group with name {{{named[1]}}}")
        return pattern.groupindex[named[1]], named.end()
    if not text[at : at + 1].isdecimal():
        raise BadConfig(f"the replacement {text!r}: Illegal group reference")
    group, at = int(text[at]), at + 1
    while text[at : at + 1].isdecimal() and group * 10 + int(text[at]) <= pattern.groups:
        group, at = group * 10 + int(text[at]), at + 1
    if group > pattern.groups:
        raise BadConfig(f"the replacement {text!r}: No group {group}")
    return group, at
