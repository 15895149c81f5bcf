"""Reads PostgreSQL's texts of single values, where Arrow cannot."""

import re
from decimal import Decimal
from typing import Any, Final

from ottla.connect.data.logical import decimal_to_bytes, split_decimal
from ottla.connect.errors import RecordError

UNAVAILABLE: Final = b"__debezium_unavailable_value"

_DAY_US: Final = 86_400_000_000
_INFINITE_DAYS: Final = 2**31 - 1
_INFINITE_US: Final = 9_223_372_036_825_200_000
_MINUS_INFINITE_US: Final = -9_223_372_036_832_400_000
"""What PostgreSQL's JDBC driver, and so Debezium, gives for infinity."""
_DATE: Final = re.compile(r"(\d+)-(\d\d)-(\d\d)(?: (\d\d:\S+?))?( BC)?$")
_TIME: Final = re.compile(r"(\d+):(\d\d)(?::(\d\d)(?:\.(\d+))?)?")
_ZONE: Final = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$")
_INTERVAL: Final = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d+))?S)?)?$"
)
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def parse_days(text: str) -> int:
    """Days since 1970."""
    if text.endswith("infinity"):
        return -_INFINITE_DAYS - 1 if text.startswith("-") else _INFINITE_DAYS
    return _split_date(text)[0]


def parse_timestamp_us(text: str) -> int:
    if text.endswith("infinity"):
        return _MINUS_INFINITE_US if text.startswith("-") else _INFINITE_US
    days, time = _split_date(text)
    return days * _DAY_US + parse_time_us(time or "00:00")


def parse_time_us(text: str) -> int:
    found = _TIME.match(text)
    if found is None:
        raise RecordError(f"{text!r} is not a time")
    hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0)
    return whole * 1_000_000 + int(((fraction or "") + "000000")[:6])


def parse_timetz(text: str) -> str:
    """In UTC, as Debezium has it."""
    found = _ZONE.search(text)
    if found is None:
        raise RecordError(f"{text!r} is not a time with a zone")
    sign, hours, minutes, seconds = found.groups()
    shift = ((int(hours) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)) * 1_000_000
    us = (parse_time_us(text) - (shift if sign == "+" else -shift)) % _DAY_US
    whole, fraction = divmod(us, 1_000_000)
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{digits}Z"


def parse_interval_us(text: str) -> int:
    """A month has a twelfth of 365.25 days, as in Debezium."""
    found = _INTERVAL.match(text)
    if found is None:
        raise RecordError(f"{text!r} is not an interval")
    years, months, days, hours, minutes = (int(each or 0) for each in found.groups()[:5])
    sign, seconds, fraction = found.groups()[5:]
    us = int(seconds or 0) * 1_000_000 + int(((fraction or "") + "000000")[:6])
    all_days = (years * 12 + months) * Decimal("30.4375") + days
    return int(all_days * _DAY_US) + (hours * 60 + minutes) * 60_000_000 + (-us if sign else us)


def parse_bytea(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def parse_bits(text: str) -> bytes:
    """Little endian, as Debezium has bits."""
    return int(text or "0", 2).to_bytes((len(text) + 7) // 8, "little")


def parse_variable_decimal(text: str) -> dict[str, Any] | None:
    """NaN, which a decimal cannot be, is null."""
    value = Decimal(text)
    if not value.is_finite():
        return None
    scale = split_decimal(value)[1]
    return {"scale": scale, "value": decimal_to_bytes(value, scale)}


def parse_array(text: str) -> list[str | None]:
    """The texts of the elements. An array of several dimensions is flattened."""
    if text.startswith("["):
        text = text.partition("=")[2]
    elements: list[str | None] = []
    for found in _ELEMENT.finditer(text):
        quoted, plain = found.groups()
        if plain is None:
            elements.append(_ESCAPED.sub(r"\1", quoted))
        else:
            elements.append(None if plain == "NULL" else plain)
    return elements


def _split_date(text: str) -> tuple[int, str | None]:
    """Days since 1970 in the Gregorian calendar, and the time of day."""
    found = _DATE.match(text)
    if found is None:
        raise RecordError(f"{text!r} is not a date")
    year, month, day = (int(each) for each in found.groups()[:3])
    if found[5]:
        year = 1 - year
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468, found[4]
