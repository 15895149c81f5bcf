"""Kafka Connect's logical types: decimals, dates, times and timestamps, as they are kept in bytes and integers."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from ottla.connect.errors import RecordError

SCALE: Final = "scale"
"""The parameter of a decimal's schema that says how many digits follow the point."""

DATE_SCHEMA: Final = Schema(Type.INT32, name=DATE, version=1)
TIME_SCHEMA: Final = Schema(Type.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = Schema(Type.INT64, name=TIMESTAMP, version=1)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)
_DAY_MS: Final = 86_400_000
_MS: Final = timedelta(milliseconds=1)


def make_decimal_schema(scale: int, *, optional: bool = False) -> Schema:
    return Schema(Type.BYTES, optional, DECIMAL, 1, parameters={SCALE: str(scale)})


def find_scale(schema: Schema) -> int:
    """The scale of a decimal's schema."""
    text = schema.parameters.get(SCALE)
    if text is None:
        raise RecordError("invalid Decimal schema: scale parameter not found")
    try:
        return int(text)
    except ValueError:
        raise RecordError(f"invalid Decimal schema: the scale {text!r} is not an integer") from None


def to_logical(schema: Schema, value: Any) -> Any:
    """The Python value that a logical type keeps as `value`: bytes of a decimal, an integer of the others."""
    try:
        if schema.name == DECIMAL:
            return bytes_to_decimal(value, find_scale(schema))
        if schema.name == DATE:
            return _EPOCH_DAY + timedelta(days=value)
        if schema.name == TIME:
            return millis_to_time(value)
        return millis_to_datetime(value)
    except OverflowError:
        raise RecordError(f"{schema.name}: {value} is not between the years 1 and 9999") from None


def from_logical(schema: Schema, value: Any) -> Any:
    """How a logical type keeps a Python value: the inverse of `to_logical`."""
    if schema.name == DECIMAL and isinstance(value, Decimal):
        return decimal_to_bytes(value, find_scale(schema))
    if schema.name == DATE and type(value) is date:
        return (value - _EPOCH_DAY).days
    if schema.name == TIME and isinstance(value, time):
        return time_to_millis(value)
    if schema.name == TIMESTAMP and isinstance(value, datetime):
        return datetime_to_millis(value)
    short = (schema.name or "").rpartition(".")[2]
    raise RecordError(f"invalid type for {short}: {type(value).__name__}")


def bytes_to_decimal(data: bytes, scale: int) -> Decimal:
    return unscaled_to_decimal(int.from_bytes(data, "big", signed=True), scale)


def unscaled_to_decimal(unscaled: int, scale: int) -> Decimal:
    """All digits are kept, whatever precision the context of decimals has."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def decimal_to_bytes(value: Decimal, scale: int) -> bytes:
    """The unscaled value as a signed integer, in as few bytes as it needs."""
    unscaled, own_scale = split_decimal(value)
    if own_scale != scale:
        raise RecordError(f"Decimal value has mismatching scale: the schema has scale {scale}, the value {own_scale}")
    bits = unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def split_decimal(value: Decimal) -> tuple[int, int]:
    """The unscaled value and the scale, as Java's BigDecimal has them."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise RecordError(f"{value} is not a number")
    unscaled = int("".join(map(str, digits)) or "0")
    return -unscaled if sign else unscaled, -exponent


def parse_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise RecordError(f"{text!r} is not a decimal") from None


def millis_to_datetime(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def datetime_to_millis(value: datetime) -> int:
    """Rounded down. A time without a zone is in UTC."""
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // _MS


def millis_to_time(millis: int) -> time:
    if not 0 <= millis < _DAY_MS:
        raise RecordError(f"Time values are milliseconds of a day, at least 0 and less than {_DAY_MS}: {millis}")
    return (EPOCH + timedelta(milliseconds=millis)).time()


def time_to_millis(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
