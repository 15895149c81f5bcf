"""Reads a value and its schema out of a text without a schema, as Kafka Connect does for headers and literals.

Arrays and maps are written as in JSON, numbers get the smallest type that holds them, and ISO 8601 dates, times and
timestamps are recognised. What is nothing of this is a string.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.connect.data.java_text import narrow_to_float, to_connect_text, to_epoch_millis, wrap_integer
from ottla.connect.data.logical import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    make_decimal_schema,
    millis_to_datetime,
    millis_to_time,
    to_logical,
)
from ottla.connect.data.schema import DATE, DECIMAL, LOGICAL_NAMES, TIME, Schema, Type
from ottla.connect.errors import RecordError

Parsed = tuple[Schema | None, Any]

STRING: Final = Schema(Type.STRING)
BOOLEAN: Final = Schema(Type.BOOLEAN)
INTEGER_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)
_WIDTH: Final = {kind: place for place, kind in enumerate((*INTEGER_BITS, *_FLOATS))}
"""A number of one type can be converted to each type that comes later."""

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DIGITS_MAX: Final = 400
"""A number with more digits before the point is no float; its integer is not computed."""

_DATE: Final = re.compile(r"(\d+)-(\d+)-(\d+)", re.ASCII)
_TIME: Final = re.compile(r"(\d+):(\d+):(\d+)\.(\d+)Z", re.ASCII)
_TIMESTAMP: Final = re.compile(r"(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)\.(\d+)Z", re.ASCII)

_DELIMITERS: Final = frozenset(':,{}[]"')


def parse_text(text: str) -> Parsed:
    """The schema and the value of a text. (None, None) for the text `null`."""
    return (STRING, text) if not text else _Parser(text).parse(embedded=False)


def convert_to_number(kind: Type, value: Any) -> int | float:
    """A number, or the text of one, as Kafka Connect makes it fit a type: integers keep their low bits."""
    number: Decimal | int | float
    if isinstance(value, str):
        try:
            number = Decimal(value) if _NUMBER.fullmatch(value) else Decimal("invalid")
        except InvalidOperation:
            raise RecordError(f"unable to convert {value!r} to a number") from None
    elif isinstance(value, int | float | Decimal):
        number = value
    elif isinstance(value, date | time):
        number = to_epoch_millis(value)
    else:
        raise RecordError(f"unable to convert {type(value).__name__} to a number")
    if kind in _FLOATS:
        return narrow_to_float(float(number)) if kind is Type.FLOAT32 else float(number)
    return wrap_integer(int(number), INTEGER_BITS[kind])


class _Parser:
    """Reads tokens: a delimiter, or what is between two. A backslash takes a delimiter's meaning away."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._pending: str | None = None
        self._previous: str | None = None

    def parse(self, *, embedded: bool) -> Parsed:
        if not self._has_next():
            return None, None
        if embedded and self._can_consume('"'):
            return self._parse_quoted()
        for literal, parsed in _LITERALS.items():
            if self._can_parse_literal(literal, embedded=embedded):
                return parsed
        start = self._mark()
        try:
            if self._can_consume("["):
                return self._parse_array()
            if self._can_consume("{"):
                return self._parse_map()
        except RecordError:
            self._rewind(start)
        token = self._next()
        if not token.strip():
            return STRING, token
        return self._parse_token(token.strip(), embedded=embedded)

    def _parse_token(self, token: str, *, embedded: bool) -> Parsed:
        if token[0].isdigit():
            parsed = self._parse_temporal_tokens(token)
            if parsed:
                return parsed
        if _NUMBER.fullmatch(token) and token[0] != ".":
            return _parse_number(token)
        if embedded:
            raise RecordError("failed to parse embedded value")
        return STRING, self._text

    def _parse_temporal_tokens(self, token: str) -> Parsed | None:
        """The colons of a time are delimiters too: such a time has five tokens."""
        start = self._mark()
        rest = self._next_tokens(4)
        if rest is not None:
            parsed = _parse_temporal(token + rest)
            if parsed:
                return parsed
        self._rewind(start)
        return _parse_temporal(token)

    def _parse_quoted(self) -> Parsed:
        content = ""
        while self._has_next() and not self._can_consume('"'):
            content += self._next()
        return _parse_temporal(content) or (STRING, content)

    def _parse_array(self) -> Parsed:
        values: list[Any] = []
        common = _CommonSchema()
        while self._has_next():
            if self._can_consume("]"):
                schema = common.schema
                if schema is not None:
                    values = [_convert(schema, each) for each in values]
                return Schema(Type.ARRAY, value_schema=schema), values
            if self._can_consume(","):
                raise RecordError(f"unable to parse an empty array element: {self._text}")
            element, value = self.parse(embedded=True)
            common.merge(element)
            values.append(value)
            start = self._mark()
            if self._can_consume("]"):
                self._rewind(start)
            elif not self._can_consume(","):
                raise RecordError(f"array elements missing ',' delimiter: {self._text}")
        raise RecordError(f"array is missing an element or its ']': {self._text}")

    def _parse_map(self) -> Parsed:
        entries: dict[Any, Any] = {}
        keys, values = _CommonSchema(), _CommonSchema()
        while self._has_next():
            if self._can_consume("}"):
                return _make_map(keys.schema, values.schema, entries)
            if self._can_consume(","):
                raise RecordError(f"unable to parse a map entry with no key or value: {self._text}")
            key_schema, key = self.parse(embedded=True)
            if key is None:
                raise RecordError(f"map entry may not have a null key: {self._text}")
            if not self._can_consume(":"):
                raise RecordError(f"map entry is missing ':': {self._text}")
            value_schema, value = self.parse(embedded=True)
            entries[_to_hashable(key)] = value
            self._can_consume(",")
            keys.merge(key_schema)
            values.merge(value_schema)
        raise RecordError(f"map is missing an element or its '}}': {self._text}")

    def _can_parse_literal(self, literal: str, *, embedded: bool) -> bool:
        """At the top, a literal is one only if nothing follows it."""
        start = self._mark()
        if self._can_consume(literal) and (embedded or not self._has_next()):
            return True
        self._rewind(start)
        return False

    def _mark(self) -> int:
        return self._at - (len(self._pending) if self._pending is not None else 0)

    def _rewind(self, position: int) -> None:
        self._at, self._pending = position, None

    def _has_next(self) -> bool:
        return self._pending is not None or self._at < len(self._text)

    def _next(self) -> str:
        token = self._consume() if self._pending is None else self._pending
        self._pending = None
        return token

    def _next_tokens(self, count: int) -> str | None:
        start = self._mark()
        for _ in range(count):
            if not self._has_next():
                self._rewind(start)
                return None
            self._next()
        return self._text[start : self._at]

    def _can_consume(self, expected: str) -> bool:
        """Whether the next token is this one; blanks around it do not count."""
        if self._pending is None:
            if not self._has_next():
                return False
            self._pending = self._consume()
        while not self._pending.strip() and self._at < len(self._text):
            self._pending = self._consume()
        if self._pending.strip() != expected:
            return False
        self._pending = None
        return True

    def _consume(self) -> str:
        start, escaped = self._at, False
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in _DELIMITERS and not escaped:
                if start == self._at:
                    self._at += 1
                break
            escaped = character == "\\" and not escaped
            self._at += 1
        return self._text[start : self._at]


_LITERALS: Final[dict[str, Parsed]] = {"null": (None, None), "true": (BOOLEAN, True), "false": (BOOLEAN, False)}


class _CommonSchema:
    """The one schema that several values can be converted to."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self._is_possible = True

    def merge(self, schema: Schema | None) -> None:
        if schema is None or not self._is_possible:
            return
        if self.schema is None or self.schema.type is schema.type:
            self.schema = schema
        elif self.schema.type in _WIDTH and schema.type in _WIDTH:
            self.schema = max(self.schema, schema, key=lambda each: _WIDTH[each.type])
        else:
            self.schema, self._is_possible = None, False


def _make_map(key_schema: Schema | None, value_schema: Schema | None, entries: dict[Any, Any]) -> Parsed:
    if key_schema is None:
        return Schema(Type.MAP), entries
    to_key: Callable[[Any], Any] = lambda key: _convert(key_schema, key)  # noqa: E731 - used once
    if value_schema is None:
        return Schema(Type.MAP, key_schema=key_schema), {to_key(key): value for key, value in entries.items()}
    schema = Schema(Type.MAP, key_schema=key_schema, value_schema=value_schema)
    return schema, {to_key(key): _convert(value_schema, value) for key, value in entries.items()}


def _to_hashable(key: Any) -> Any:
    if isinstance(key, list | dict):
        raise RecordError("map entry may not have an array or a map as key")
    return key


def _convert(schema: Schema, value: Any) -> Any:
    """A parsed value as one of the schema that the values of an array or a map have in common."""
    if value is None:
        raise RecordError("unable to convert a null value to a schema that requires a value")
    if schema.name in LOGICAL_NAMES:
        return _convert_to_logical(schema, value)
    if schema.type is Type.STRING:
        return to_connect_text(None, value)
    if schema.type in _WIDTH:
        return convert_to_number(schema.type, value)
    return value


def _convert_to_logical(schema: Schema, value: Any) -> Any:
    if schema.name == DECIMAL:
        return value if isinstance(value, Decimal) else Decimal(repr(float(value)))
    millis = to_epoch_millis(value) if isinstance(value, date | time) else None
    if millis is None:
        return to_logical(schema, int(value))
    if schema.name == DATE:
        return millis_to_datetime(millis).date()
    return millis_to_time(millis) if schema.name == TIME else millis_to_datetime(millis)


def _parse_number(token: str) -> Parsed:
    number = Decimal(token)
    is_integer = number == 0 or (number.adjusted() < _DIGITS_MAX and number == number.to_integral_value())
    if is_integer and -(1 << 63) <= int(number) < 1 << 63:
        integer = int(number)
        kind = next(kind for kind, bits in INTEGER_BITS.items() if -(1 << bits - 1) <= integer < 1 << bits - 1)
        return Schema(kind), integer
    exponent = number.as_tuple().exponent
    if exponent != 0 and math.isfinite(narrow_to_float(float(number))):
        return Schema(Type.FLOAT32), narrow_to_float(float(number))
    if exponent != 0 and math.isfinite(float(number)):
        return Schema(Type.FLOAT64), float(number)
    return make_decimal_schema(-int(exponent)), number


def _parse_temporal(token: str) -> Parsed | None:
    """A date, a time or a timestamp, which are told apart by their length. Days and hours beyond a month's or a day's
    end count on, as Java's lenient parser has it."""
    token = token.replace("\\:", ":")
    parse = _TEMPORAL.get(len(token))
    try:
        return parse(token) if parse else None
    except (ValueError, OverflowError, RecordError):
        return None


def _parse_date(token: str) -> Parsed | None:
    found = _DATE.match(token)
    return (DATE_SCHEMA, _count_days(*map(int, found.groups())).date()) if found else None


def _parse_time(token: str) -> Parsed | None:
    found = _TIME.match(token)
    return (TIME_SCHEMA, millis_to_time(_count_millis(*map(int, found.groups())))) if found else None


def _parse_timestamp(token: str) -> Parsed | None:
    found = _TIMESTAMP.match(token)
    if not found:
        return None
    numbers = [int(each) for each in found.groups()]
    return TIMESTAMP_SCHEMA, _count_days(*numbers[:3]) + timedelta(milliseconds=_count_millis(*numbers[3:]))


def _count_days(year: int, month: int, day: int) -> datetime:
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return datetime(year, month, 1, tzinfo=UTC) + timedelta(days=day - 1)


def _count_millis(hour: int, minute: int, second: int, millis: int) -> int:
    return ((hour * 60 + minute) * 60 + second) * 1000 + millis


_TEMPORAL: Final[dict[int, Callable[[str], Parsed | None]]] = {10: _parse_date, 13: _parse_time, 24: _parse_timestamp}
