"""Numbers and values as Java writes and reads them, where Kafka Connect lets Java's text reach a topic."""

import math
import re
from base64 import b64encode
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import numpy as np

from ottla.connect.data.logical import EPOCH, datetime_to_millis, time_to_millis
from ottla.connect.data.schema import Schema, Type, read_field
from ottla.connect.errors import RecordError

_DAY_MS: Final = 86_400_000
_SCIENTIFIC: Final = re.compile(r"(-?)(\d)(?:\.(\d+))?[eE]([+-]?\d+)")
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7
"""Between these, Java writes a float without an exponent."""


def wrap_integer(value: int, bits: int) -> int:
    """The low bits of an integer, as Java's narrowing casts keep them."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def narrow_to_float(value: float) -> float:
    """The nearest 32-bit float; beyond its range, infinity."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def format_float(value: float, kind: Type = Type.FLOAT64) -> str:
    """`Double.toString`, or `Float.toString` of a FLOAT32: the fewest digits that give the same number again."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if kind is Type.FLOAT32 else np.float64(value)
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_TO:
        return np.format_float_positional(number, trim="0")
    text = np.format_float_scientific(number, trim="0")
    found = _SCIENTIFIC.fullmatch(text)
    assert found, text
    sign, first, rest, exponent = found.groups()
    return f"{sign}{first}.{rest or '0'}E{int(exponent)}"


def format_number(value: int | float | Decimal, schema: Schema | None) -> str:
    if isinstance(value, float):
        return format_float(value, Type.FLOAT64 if schema is None else schema.type)
    return str(value)


def to_epoch_millis(value: date | time | datetime) -> int:
    """The milliseconds of the `java.util.Date` that Kafka Connect would have for the value."""
    if isinstance(value, datetime):
        return datetime_to_millis(value)
    if isinstance(value, time):
        return time_to_millis(value)
    return (value - EPOCH.date()).days * _DAY_MS


def format_date(value: date | time | datetime) -> str:
    """As Kafka Connect writes dates in text, which looks only at the value: 1970 is a time, midnight a date."""
    millis = to_epoch_millis(value)
    moment = _to_datetime(value)
    clock = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    if millis < _DAY_MS:
        return clock
    day = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    return day if millis % _DAY_MS == 0 else f"{day}T{clock}"


def _to_datetime(value: date | time | datetime) -> datetime:
    if isinstance(value, datetime):
        return value.astimezone(EPOCH.tzinfo) if value.tzinfo else value
    return datetime.combine(EPOCH.date(), value) if isinstance(value, time) else datetime.combine(value, time())


def to_connect_text(schema: Schema | None, value: Any, *, embedded: bool = False) -> str:
    """Kafka Connect's own text for a value, as header converters write it: JSON for what has parts."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return format_number(value, schema)
    if isinstance(value, str | bytes):
        text = b64encode(value).decode() if isinstance(value, bytes) else value
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"' if embedded else text
    if isinstance(value, list | tuple):
        element = schema.value_schema if schema else None
        return f"[{','.join(to_connect_text(element, each, embedded=True) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(_entries(schema, value))}}}"
    if isinstance(value, date | time):
        return format_date(value)
    raise RecordError(f"failed to serialize unexpected value type {type(value).__name__}")


def _entries(schema: Schema | None, value: dict[Any, Any]) -> list[str]:
    if schema is not None and schema.type is Type.STRUCT:
        return [
            f"{to_connect_text(None, each.name, embedded=True)}:"
            + to_connect_text(each.schema, read_field(schema, value, each.name), embedded=True)
            for each in schema.fields
        ]
    key_schema, value_schema = (schema.key_schema, schema.value_schema) if schema else (None, None)
    return [
        f"{to_connect_text(key_schema, key, embedded=True)}:{to_connect_text(value_schema, each, embedded=True)}"
        for key, each in value.items()
    ]


def to_java_text(schema: Schema | None, value: Any) -> str:
    """`toString` of the Java object that Kafka Connect would have, in a worker whose time zone is UTC."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return format_number(value, schema)
    if isinstance(value, list | tuple):
        element = schema.value_schema if schema else None
        return f"[{', '.join(to_java_text(element, each) for each in value)}]"
    if isinstance(value, dict):
        return _to_java_map(schema, value)
    if isinstance(value, date | time):
        moment = _to_datetime(value)
        return f"{moment:%a %b %d %H:%M:%S} UTC {moment.year:04d}"
    raise RecordError(f"{type(value).__name__} has no text")


def _to_java_map(schema: Schema | None, value: dict[Any, Any]) -> str:
    if schema is not None and schema.type is Type.STRUCT:
        fields = [(each, value.get(each.name)) for each in schema.fields]
        parts = [f"{field.name}={to_java_text(field.schema, each)}" for field, each in fields if each is not None]
        return f"Struct{{{','.join(parts)}}}"
    key_schema, value_schema = (schema.key_schema, schema.value_schema) if schema else (None, None)
    pairs = (f"{to_java_text(key_schema, key)}={to_java_text(value_schema, each)}" for key, each in value.items())
    return f"{{{', '.join(pairs)}}}"
