"""Arrow columns as JSON text: the form of values in state, of keys with several columns, and of JSON records.

    numbers, booleans, strings   as in JSON; NaN and infinities are the strings "NaN", "Infinity" and "-Infinity"
    timestamps                   "2024-05-01T12:00:00.000000Z", without Z if the type has no time zone
    dates                        "2024-05-01"; dates and timestamps outside of the years 1 to 9999 are the type's number
    decimals                     strings, because a JSON number of most readers is a double
    binary                       strings in base64
    lists, structs               arrays, objects
    maps                         objects if the keys are strings, otherwise arrays of [key, value]

The same value always makes the same text, because keys of records and of stores are made from it. Arrow makes the text
of a whole column at once; only strings that need escapes and binary values are handled one by one.
"""

from base64 import b64encode
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

NAN, INFINITY, MINUS_INFINITY = "NaN", "Infinity", "-Infinity"

_NEEDS_ESCAPE: Final = np.zeros(256, np.bool_)
_NEEDS_ESCAPE[:0x20] = True
_NEEDS_ESCAPE[[ord('"'), ord("\\")]] = True

MICROSECONDS_MIN: Final = -62_135_596_800_000_000
MICROSECONDS_MAX: Final = 253_402_300_799_999_999
DAYS_MIN: Final = -719_162
DAYS_MAX: Final = 2_932_896
"""The first and last moment of the years 1 to 9999, which ISO 8601 and Python can write."""


def check_type(kind: pa.DataType, name: str) -> None:
    """Raises ValueError with one line if values of this type have no JSON text."""
    types = pa.types
    if types.is_struct(kind):
        for field in kind:
            check_type(field.type, f"{name}.{field.name}")
    elif types.is_map(kind):
        check_type(kind.key_type, f"{name}.key")
        check_type(kind.item_type, f"{name}.value")
    elif types.is_list(kind):
        check_type(kind.value_type, f"{name}.element")
    elif not (
        types.is_null(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or kind in (pa.float32(), pa.float64())
        or types.is_decimal(kind)
        or kind in (pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"))
        or (types.is_timestamp(kind) and kind == pa.timestamp("us", "UTC"))
    ):
        raise ValueError(f"column {name!r}: {kind} has no form in JSON; cast it to another type")


def to_text(column: pa.Array) -> pa.StringArray:
    """The JSON text of each value. A null is the text `null`, so the result has no nulls."""
    return pc.fill_null(_write(column), "null")


def join(*parts: Any) -> pa.StringArray:
    """Concatenates columns and constants row by row."""
    return pc.binary_join_element_wise(*parts, "")


def _write(column: pa.Array) -> pa.StringArray:
    """The text of each value; rows of nulls are null or have the text `null`."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_string(kind):
        return _write_strings(column)
    if pa.types.is_floating(kind):
        return _write_floats(column)
    if pa.types.is_timestamp(kind):
        return _write_timestamps(column)
    if pa.types.is_date(kind):
        return _write_dates(column)
    if pa.types.is_decimal(kind):
        return _quote(column.cast(pa.string()))
    if pa.types.is_binary(kind):
        texts = [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
        return _quote(pa.array(texts, pa.string()))
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    return _write_nested(column)


def _quote(texts: pa.StringArray) -> pa.StringArray:
    return join('"', texts, '"')


def _write_strings(column: pa.StringArray) -> pa.StringArray:
    if not _has_escapes(column):
        return _quote(column)
    values = column.to_numpy(zero_copy_only=False).tolist()
    return pa.array([None if value is None else orjson.dumps(value) for value in values], pa.binary()).cast(pa.string())


def _has_escapes(column: pa.StringArray) -> bool:
    _, offsets, content = column.buffers()
    if content is None or not len(column):
        return False
    ends = np.frombuffer(offsets, np.int32)
    used = np.frombuffer(content, np.uint8)[ends[column.offset] : ends[column.offset + len(column)]]
    return bool(_NEEDS_ESCAPE[used].any())


def _write_floats(column: pa.Array) -> pa.StringArray:
    texts = column.cast(pa.string())
    values = column.to_numpy(zero_copy_only=False)
    if not np.isfinite(values).all():
        names = {"nan": f'"{NAN}"', "inf": f'"{INFINITY}"', "-inf": f'"{MINUS_INFINITY}"'}
        for name, quoted in names.items():
            texts = pc.if_else(pc.equal(texts, name), quoted, texts)
    if (np.signbit(values) & (values == 0)).any():
        texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)  # many JSON parsers read -0 as the integer 0
    return texts


def _write_timestamps(column: pa.Array) -> pa.StringArray:
    """Arrow writes times without a zone, which UTC needs none of, thirty times as fast as those with one, and with a
    space in the place of the T."""
    numbers = column.cast(pa.int64())
    local = numbers.cast(pa.timestamp("us")).cast(pa.string())
    texts = pc.binary_replace_slice(local.cast(pa.binary()), 10, 11, b"T").cast(pa.string())
    texts = join('"', texts, 'Z"' if column.type.tz else '"')
    return _number_outside(numbers, texts, MICROSECONDS_MIN, MICROSECONDS_MAX)


def _write_dates(column: pa.Array) -> pa.StringArray:
    return _number_outside(column.cast(pa.int32()), _quote(column.cast(pa.string())), DAYS_MIN, DAYS_MAX)


def _number_outside(numbers: pa.Array, texts: pa.StringArray, first: int, last: int) -> pa.StringArray:
    extent = pc.min_max(numbers).as_py()
    if extent["min"] is None or (extent["min"] >= first and extent["max"] <= last):
        return texts
    is_outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    return pc.if_else(is_outside, numbers.cast(pa.string()), texts)


def _write_nested(column: pa.Array) -> pa.StringArray:
    kind = column.type
    if pa.types.is_struct(kind):
        texts = object_text([field.name for field in kind], column.flatten(), len(column))
    elif pa.types.is_map(kind):
        texts = _write_maps(column)
    else:
        texts = join("[", _join_items(column, to_text(column.values)), "]")
    return pc.if_else(column.is_valid(), texts, None)


def object_text(names: list[str], columns: list[pa.Array], rows: int) -> pa.StringArray:
    """JSON objects with one field for each column."""
    if not names:
        return pa.array(["{}"] * rows, pa.string())
    parts: list[Any] = []
    for name, column in zip(names, columns, strict=True):
        parts += [f"{',' if parts else '{'}{orjson.dumps(name).decode()}:", to_text(column)]
    return join(*parts, "}")


def _write_maps(column: pa.MapArray) -> pa.StringArray:
    keys, values = to_text(column.keys), to_text(column.items)
    if pa.types.is_string(column.type.key_type):
        return join("{", _join_items(column, join(keys, ":", values)), "}")
    return join("[", _join_items(column, join("[", keys, ",", values, "]")), "]")


def _join_items(column: pa.Array, items: pa.StringArray) -> pa.StringArray:
    """The texts of each row's items with commas between them. `items` belong to the whole buffer of the list, of which
    `column` may be a slice."""
    ends = pa.array(column.offsets.to_numpy(zero_copy_only=False), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(ends, items), ",")
