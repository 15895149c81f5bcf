"""Texts that match a pattern: characters, classes, groups with alternatives, and how often each comes."""

from collections.abc import Callable
from random import Random
from typing import Final

Make = Callable[[Random], str]

REPEATS_MAX: Final = 100
_UNLIMITED: Final = 8
"""How often `*` and `+` repeat at most."""
_CLASSES: Final = {
    "d": "0123456789",
    "w": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
    "s": " ",
}
_PRINTABLE: Final = "".join(map(chr, range(32, 127)))


def compile_generator(pattern: str) -> Make:
    """A function that makes texts. ValueError if the pattern has what is not supported."""
    parser = _Parser(pattern)
    make = parser.parse_alternatives()
    if parser.at < len(pattern):
        raise ValueError(f"the pattern {pattern!r} has a ) too many")
    return make


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0

    def parse_alternatives(self) -> Make:
        found = [self._parse_sequence()]
        while self._peek() == "|":
            self.at += 1
            found.append(self._parse_sequence())
        return found[0] if len(found) == 1 else lambda random: random.choice(found)(random)

    def _parse_sequence(self) -> Make:
        parts: list[Make] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._parse_repeated(self._parse_atom()))
        return lambda random: "".join(part(random) for part in parts)

    def _parse_repeated(self, make: Make) -> Make:
        least, most = self._parse_counts()
        if (least, most) == (1, 1):
            return make
        return lambda random: "".join(make(random) for _ in range(random.randint(least, most)))

    def _parse_counts(self) -> tuple[int, int]:
        simple = {"?": (0, 1), "*": (0, _UNLIMITED), "+": (1, _UNLIMITED)}
        sign = self._peek()
        if sign in simple:
            self.at += 1
            return simple[sign]
        if sign != "{":
            return 1, 1
        end = self._pattern.find("}", self.at)
        first, comma, last = self._pattern[self.at + 1 : end].partition(",")
        if end < 0 or not first.isdecimal() or not (last.isdecimal() or not last):
            raise self._fail("a { that says no number of repetitions")
        self.at = end + 1
        least = int(first)
        most = int(last) if last else least + _UNLIMITED if comma else least
        if not least <= most <= REPEATS_MAX:
            raise self._fail(f"repetitions other than 0 to {REPEATS_MAX}")
        return least, most

    def _parse_atom(self) -> Make:
        sign = self._pattern[self.at]
        self.at += 1
        if sign == "(":
            if self._pattern.startswith("?:", self.at):
                self.at += 2
            inner = self.parse_alternatives()
            if self._peek() != ")":
                raise self._fail("a ( without its )")
            self.at += 1
            return inner
        if sign == "[":
            return _choose(self._parse_class())
        if sign == "\\":
            return _choose(self._parse_escape())
        if sign == ".":
            return _choose(_PRINTABLE)
        if sign in "*+?{^$":
            raise self._fail(f"{sign} where it means nothing")
        return lambda _: sign

    def _parse_class(self) -> str:
        found = ""
        if self._peek() == "^":
            raise self._fail("a class of what is not in it")
        while self._peek() != "]":
            if not self._peek():
                raise self._fail("a [ without its ]")
            first = self._pattern[self.at]
            self.at += 1
            if first == "\\":
                found += self._parse_escape()
            elif self._peek() == "-" and self._pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                last = self._pattern[self.at + 1]
                self.at += 2
                found += "".join(map(chr, range(ord(first), ord(last) + 1)))
            else:
                found += first
        self.at += 1
        if not found:
            raise self._fail("an empty class")
        return found

    def _parse_escape(self) -> str:
        sign = self._peek()
        self.at += 1
        if not sign or (sign.isalnum() and sign not in _CLASSES):
            raise self._fail(f"\\{sign}")
        return _CLASSES.get(sign, sign)

    def _peek(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _fail(self, what: str) -> ValueError:
        return ValueError(f"the pattern {self._pattern!r} has {what}, which is not supported")


def _choose(characters: str) -> Make:
    return lambda random: random.choice(characters)
