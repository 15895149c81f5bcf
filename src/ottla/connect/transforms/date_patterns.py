"""Dates in Java's SimpleDateFormat patterns, in UTC and English: written, and read as leniently as Java does.

A pattern is split into literal text and fields, runs of one letter. Numbers that follow each other without text between
them have as many digits as the letter is repeated; others end at the first character that is not a digit. Values beyond
the range of a field count on: the 32nd of January is the 1st of February. Text after the pattern's end is ignored.

The calendar is Gregorian at all times; Java's is Julian before October 1582.

The letters Y, w, W and F depend on the weeks of a country and are refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from ottla.connect.errors import BadConfig, RecordError

_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBERS: Final = frozenset("yMLDdHkKhmsSu")
"""Letters of numbers; M and L are names from three letters on."""
_REFUSED: Final = frozenset("YwWF")
_NUMBER: Final = re.compile(r"[ \t]*(-?\d+)", re.ASCII)
_ZONE: Final = re.compile(
    r"(?:(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?)|UTC|GMT|UT|Z|Coordinated Universal Time", re.ASCII
)
_YEARS_BACK: Final = 80
"""A year of two digits lies between so many years ago and 20 years from now."""


@dataclass(frozen=True)
class _Piece:
    letter: str
    """Empty for text."""
    count: int
    text: str = ""
    is_adjacent: bool = False
    """The next piece is a number too, so this one has exactly `count` digits."""

    @property
    def is_number(self) -> bool:
        return self.letter in _NUMBERS and not (self.letter in "ML" and self.count >= 3) if self.letter else False


class DatePattern:
    def __init__(self, pattern: str, today: date | None = None) -> None:
        """`today` decides about years of two digits; None: the day on which the pattern is made, as in Java.

        BadConfig names a letter that SimpleDateFormat does not have, or that is not supported here.
        """
        self.pattern = pattern
        self._pieces = _mark_adjacent(_split(pattern))
        self._first_year = (today or date.today()).year - _YEARS_BACK

    def format(self, moment: datetime) -> str:
        return "".join(
            piece.text if not piece.letter else _WRITERS[piece.letter](moment, piece.count) for piece in self._pieces
        )

    def parse(self, text: str) -> datetime:
        """RecordError if the text does not match."""
        fields: dict[str, int] = {}
        at = 0
        for piece in self._pieces:
            end = self._parse_piece(piece, text, at, fields)
            if end is None:
                raise RecordError(f"Could not parse timestamp: value ({text}) does not match pattern ({self.pattern})")
            at = end
        try:
            return _put_together(fields)
        except (ValueError, OverflowError):
            raise RecordError(f"Could not parse timestamp: {text} is not between the years 1 and 9999") from None

    def _parse_piece(self, piece: _Piece, text: str, at: int, fields: dict[str, int]) -> int | None:
        if not piece.letter:
            return at + len(piece.text) if text.startswith(piece.text, at) else None
        if piece.is_number:
            return self._parse_number(piece, text, at, fields)
        while at < len(text) and text[at] in " \t":
            at += 1
        if piece.letter in "zZX":
            return _parse_zone(piece, text, at, fields)
        names = {"M": _MONTHS, "L": _MONTHS, "E": _DAYS, "a": ("AM", "PM"), "G": ("BC", "AD")}[piece.letter]
        return _parse_name(piece.letter, names, text, at, fields)

    def _parse_number(self, piece: _Piece, text: str, at: int, fields: dict[str, int]) -> int | None:
        found = _NUMBER.match(text[: at + piece.count] if piece.is_adjacent else text, at)
        if not found:
            return None
        number = int(found[1])
        if piece.letter == "y" and piece.count <= 2 and len(found[1]) == 2 and number >= 0:
            number += self._first_year // 100 * 100
            number += 100 if number < self._first_year else 0
        fields["M" if piece.letter == "L" else piece.letter] = number
        return found.end()


def _split(pattern: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "'":
            text, at = _take_quoted(pattern, at)
            pieces.append(_Piece("", 0, text))
        elif letter.isascii() and letter.isalpha():
            if letter not in _WRITERS:
                known = (
                    "cannot be used here: it depends on a country" if letter in _REFUSED else "is no letter of a date"
                )
                raise BadConfig(f"the pattern {pattern!r}: {letter!r} {known}")
            end = at
            while end < len(pattern) and pattern[end] == letter:
                end += 1
            pieces.append(_Piece(letter, end - at))
            at = end
        else:
            pieces.append(_Piece("", 0, letter))
            at += 1
    return pieces


def _take_quoted(pattern: str, at: int) -> tuple[str, int]:
    """The text between two quotes, and the place after it. Two quotes are one."""
    if pattern.startswith("''", at):
        return "'", at + 2
    text, at = "", at + 1
    while at < len(pattern):
        if pattern.startswith("''", at):
            text, at = text + "'", at + 2
        elif pattern[at] == "'":
            return text, at + 1
        else:
            text, at = text + pattern[at], at + 1
    raise BadConfig(f"the pattern {pattern!r} has an unterminated quote")


def _mark_adjacent(pieces: list[_Piece]) -> list[_Piece]:
    return [
        _Piece(each.letter, each.count, each.text, each.is_number and following is not None and following.is_number)
        for each, following in zip(pieces, [*pieces[1:], None], strict=True)
    ]


def _write_number(value: int, count: int) -> str:
    return str(value).zfill(count)


def _write_month(moment: datetime, count: int) -> str:
    if count < 3:
        return _write_number(moment.month, count)
    name = _MONTHS[moment.month - 1]
    return name if count > 3 else name[:3]


def _write_day(moment: datetime, count: int) -> str:
    name = _DAYS[moment.weekday()]
    return name if count > 3 else name[:3]


def _write_year(moment: datetime, count: int) -> str:
    return f"{moment.year % 100:02d}" if count == 2 else _write_number(moment.year, count)


_WRITERS: Final[dict[str, Callable[[datetime, int], str]]] = {
    "G": lambda _, __: "AD",
    "y": _write_year,
    "M": _write_month,
    "L": _write_month,
    "D": lambda moment, count: _write_number(moment.timetuple().tm_yday, count),
    "d": lambda moment, count: _write_number(moment.day, count),
    "E": _write_day,
    "u": lambda moment, count: _write_number(moment.isoweekday(), count),
    "a": lambda moment, _: "AM" if moment.hour < 12 else "PM",
    "H": lambda moment, count: _write_number(moment.hour, count),
    "k": lambda moment, count: _write_number(moment.hour or 24, count),
    "K": lambda moment, count: _write_number(moment.hour % 12, count),
    "h": lambda moment, count: _write_number(moment.hour % 12 or 12, count),
    "m": lambda moment, count: _write_number(moment.minute, count),
    "s": lambda moment, count: _write_number(moment.second, count),
    "S": lambda moment, count: _write_number(moment.microsecond // 1000, count),
    "z": lambda _, count: "UTC" if count < 4 else "Coordinated Universal Time",
    "Z": lambda _, __: "+0000",
    "X": lambda _, __: "Z",
}


def _parse_name(letter: str, names: tuple[str, ...], text: str, at: int, fields: dict[str, int]) -> int | None:
    """The longest name that matches, whole or its first three letters, in any case."""
    choices = [(name, number) for number, name in enumerate(names)]
    choices += [(name[:3], number) for name, number in choices]
    for name, number in sorted(choices, key=lambda each: -len(each[0])):
        if text[at : at + len(name)].lower() == name.lower():
            fields["M" if letter == "L" else letter] = number + 1 if letter in "ML" else number
            return at + len(name)
    return None


def _parse_zone(piece: _Piece, text: str, at: int, fields: dict[str, int]) -> int | None:
    found = _ZONE.match(text, at)
    if not found:
        return None
    if found[1]:
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        fields["Z"] = -minutes if found[1] == "-" else minutes
    return found.end()


def _put_together(fields: dict[str, int]) -> datetime:
    year = fields.get("y", 1970)
    if fields.get("G") == 0:
        year = 1 - year
    if "D" in fields and "d" not in fields:
        start, days = datetime(year, 1, 1, tzinfo=UTC), fields["D"]
    else:
        month = fields.get("M", 1) - 1
        start, days = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC), fields.get("d", 1)
    return start + timedelta(
        days=days - 1,
        hours=_find_hour(fields),
        minutes=fields.get("m", 0) - fields.get("Z", 0),
        seconds=fields.get("s", 0),
        milliseconds=fields.get("S", 0),
    )


def _find_hour(fields: dict[str, int]) -> int:
    if "H" in fields:
        return fields["H"]
    if "k" in fields:
        return 0 if fields["k"] == 24 else fields["k"]
    hour = fields.get("K", fields.get("h", 0))
    return (0 if "h" in fields and hour == 12 else hour) + 12 * fields.get("a", 0)
