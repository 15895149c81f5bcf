"""Single values to and from JSON, in the forms of `json_text.py`, for rows that Arrow cannot handle at once.

A *writer* turns a value of a Python row into what orjson can write. A *reader* turns what orjson has parsed into a
value for `pa.array` (numbers for timestamps and dates, pairs for maps) or for a Python row (datetimes and dicts). Both
refuse what does not fit the type, with a ValueError of one line, so that no wrong value gets into a changelog.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import inf, isfinite, nan
from operator import index
from struct import Struct
from typing import Any

import pyarrow as pa

from ottla.streams.state.json_text import (
    DAYS_MAX,
    DAYS_MIN,
    INFINITY,
    MICROSECONDS_MAX,
    MICROSECONDS_MIN,
    MINUS_INFINITY,
    NAN,
)

Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_SINGLE = Struct("f")
_MICROSECOND = timedelta(microseconds=1)
_SPECIAL = {NAN: nan, INFINITY: inf, MINUS_INFINITY: -inf}


def _or_null(convert: Convert, kind: pa.DataType) -> Convert:
    def apply(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, ValueError, AttributeError, OverflowError, InvalidOperation) as error:
            if isinstance(error, _Misfit):
                raise
            raise _Misfit(f"{value!r:.60} is not {kind}") from None

    return apply


class _Misfit(ValueError):
    """A value does not fit its type; raised for the innermost one."""


# To JSON


def make_writer(kind: pa.DataType) -> Convert:
    types = pa.types
    if types.is_struct(kind):
        return _or_null(_write_struct({field.name: make_writer(field.type) for field in kind}), kind)
    if types.is_map(kind):
        return _or_null(_write_map(kind), kind)
    if types.is_list(kind):
        write = make_writer(kind.value_type)
        return _or_null(lambda items: [write(each) for each in _sequence(items)], kind)
    if types.is_integer(kind):
        return _or_null(_integer_within(kind), kind)
    simple: Convert
    if types.is_boolean(kind):
        simple = _boolean
    elif types.is_string(kind):
        simple = _text
    elif types.is_floating(kind):
        simple = _write_float
    elif types.is_timestamp(kind):
        simple = _write_timestamp if kind.tz else _write_local_timestamp
    elif types.is_date(kind):
        simple = _write_date
    elif types.is_decimal(kind):
        simple = _write_decimal(kind)
    elif types.is_binary(kind):
        simple = _write_binary
    else:
        simple = _nothing
    return _or_null(simple, kind)


def _write_struct(fields: Mapping[str, Convert]) -> Convert:
    return lambda value: {name: write(value.get(name)) for name, write in fields.items()}


def _write_map(kind: pa.DataType) -> Convert:
    write_key, write_value = make_writer(kind.key_type), make_writer(kind.item_type)
    as_object = pa.types.is_string(kind.key_type)

    def write(value: Any) -> Any:
        pairs = value.items() if isinstance(value, Mapping) else value
        written = [(write_key(key), write_value(each)) for key, each in pairs]
        return dict(written) if as_object else written

    return write


def _integer_within(kind: pa.DataType) -> Convert:
    is_signed = pa.types.is_signed_integer(kind)
    last = (1 << (kind.bit_width - is_signed)) - 1
    first = -last - 1 if is_signed else 0

    def check(value: Any) -> int:
        found = index(value)
        if isinstance(value, bool) or not first <= found <= last:
            raise ValueError
        return found

    return check


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise TypeError
    return bool(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return str(value)


def _sequence(value: Any) -> Any:
    if isinstance(value, str | bytes | Mapping):
        raise TypeError
    return value


def _nothing(_: Any) -> None:
    raise TypeError


def _write_float(value: Any) -> float | str:
    if isinstance(value, str | bytes | bool):
        raise TypeError
    found = float(value)
    if isfinite(found):
        return found
    return NAN if found != found else INFINITY if found > 0 else MINUS_INFINITY


def _write_timestamp(value: datetime) -> str:
    """A datetime without a time zone is taken for UTC, as Arrow and the rest of `ottla.streams` do."""
    moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"


def _write_local_timestamp(value: datetime) -> str:
    if value.tzinfo is not None:
        raise ValueError
    return value.isoformat(timespec="microseconds")


def _write_date(value: date) -> str:
    if isinstance(value, datetime):
        raise TypeError
    return value.isoformat()


def _write_decimal(kind: pa.DataType) -> Convert:
    def write(value: Any) -> str:
        """Arrow refuses digits that the type has no room for."""
        given = value if isinstance(value, Decimal) else Decimal(str(value))
        return str(pa.scalar(given, kind).cast(pa.string()).as_py())

    return write


def _write_binary(value: Any) -> str:
    if isinstance(value, str | int):
        raise TypeError
    return b64encode(bytes(value)).decode()


# From JSON


def read_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """What orjson has parsed as a column. ValueError if a value does not fit."""
    own = str if kind == pa.string() else int if kind == pa.int64() else bool if kind == pa.bool_() else None
    if own is not None and {*map(type, values)} <= {own, type(None)}:
        try:
            return pa.array(values, kind)
        except OverflowError:
            pass  # the reader says which number is too large
    read = make_reader(kind, for_python=False)
    return pa.array([read(value) for value in values], kind)


def make_reader(kind: pa.DataType, *, for_python: bool) -> Convert:
    types = pa.types
    if types.is_struct(kind):
        readers = {field.name: make_reader(field.type, for_python=for_python) for field in kind}
        return _or_null(_read_struct(readers), kind)
    if types.is_map(kind):
        return _or_null(_read_map(kind, for_python), kind)
    if types.is_list(kind):
        read = make_reader(kind.value_type, for_python=for_python)
        return _or_null(lambda items: [read(each) for each in _sequence(items)], kind)
    if types.is_integer(kind):
        return _or_null(_integer_within(kind), kind)
    simple: Convert
    if types.is_boolean(kind):
        simple = _boolean
    elif types.is_string(kind):
        simple = _text
    elif types.is_floating(kind):
        simple = _read_single_float if kind == pa.float32() else _read_float
    elif types.is_timestamp(kind):
        simple = _read_timestamp(kind, for_python)
    elif types.is_date(kind):
        simple = _read_date if for_python else _read_days
    elif types.is_decimal(kind):
        simple = _read_decimal(kind)
    elif types.is_binary(kind):
        simple = _read_binary
    else:
        simple = _nothing
    return _or_null(simple, kind)


def _read_struct(fields: Mapping[str, Convert]) -> Convert:
    """Fields that are missing are null, and fields that the type does not have are ignored."""

    def read(value: Any) -> dict[str, Any]:
        found = {}
        for name, read_field in fields.items():
            try:
                found[name] = read_field(value.get(name))
            except _Misfit as error:
                raise _Misfit(f"{name}: {error}") from None
        return found

    return read


def _read_map(kind: pa.DataType, for_python: bool) -> Convert:
    read_key = make_reader(kind.key_type, for_python=for_python)
    read_value = make_reader(kind.item_type, for_python=for_python)

    def read(value: Any) -> Any:
        pairs = value.items() if isinstance(value, Mapping) else value
        found = [(read_key(key), read_value(each)) for key, each in pairs]
        return dict(found) if for_python else found

    return read


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and value not in _SPECIAL):
        raise TypeError
    return _SPECIAL[value] if isinstance(value, str) else float(value)


def _read_single_float(value: Any) -> float:
    """Rounds to the 32 bits of the type, as Arrow does."""
    number: float = _SINGLE.unpack(_SINGLE.pack(_read_float(value)))[0]
    return number


def _read_timestamp(kind: pa.DataType, for_python: bool) -> Convert:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            number = (moment - _EPOCH) // _MICROSECOND
        else:
            number = _number_outside(value, MICROSECONDS_MIN, MICROSECONDS_MAX)
        if not for_python:
            return number
        moment = _EPOCH + number * _MICROSECOND
        return moment if kind.tz else moment.replace(tzinfo=None)

    return read


def _read_days(value: Any) -> int:
    if isinstance(value, str):
        return (date.fromisoformat(value) - _EPOCH_DAY).days
    return _number_outside(value, DAYS_MIN, DAYS_MAX)


def _number_outside(value: Any, first: int, last: int) -> int:
    """A time as a number: only one that has no text. Others are refused, because nobody knows their unit."""
    number = index(value)
    if first <= number <= last:
        raise ValueError
    return number


def _read_date(value: Any) -> date:
    return _EPOCH_DAY + timedelta(days=_read_days(value))


def _read_decimal(kind: pa.DataType) -> Convert:
    return lambda value: pa.scalar(Decimal(str(value)), kind).as_py()


def _read_binary(value: Any) -> bytes:
    return b64decode(_text(value), validate=True)
