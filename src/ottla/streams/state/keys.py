"""Keys as bytes: those of records, and those of windows and sessions in a store.

A key of one column of string, binary, int32, int64, double or bool has the bytes that Kafka's serializer of that type
writes, so a topic that is keyed by such a column is partitioned as one that a Java client writes. Any other key is a
compact JSON array of its columns, in the forms of `json_text.py`.

Keys in window and session stores begin with the key of the record. It is escaped (0x00 becomes 0x00 0xFF) and ends with
0x00 0x01, so that no key is the beginning of another one and the order of keys stays the same. Times follow in eight
bytes each, in an order-preserving form. So all windows of a key lie side by side, by time:

    window    escaped key, start
    session   escaped key, end, start
"""

from collections.abc import Mapping, Sequence
from struct import Struct, error
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.formats.numbers import Numbers
from ottla.streams.state.json_text import check_type, join, to_text
from ottla.streams.state.json_values import make_writer, read_column
from ottla.streams.state.values import as_bytes, take_column

_NUMBERS: Final = {
    pa.int32(): Struct(">i"),
    pa.int64(): Struct(">q"),
    pa.float64(): Struct(">d"),
    pa.bool_(): Struct("?"),
}
_BYTES: Final = (pa.string(), pa.binary())

_TIME: Final = Struct(">Q")
_TWO_TIMES: Final = Struct(">QQ")
_TIME_ZERO: Final = 1 << 63
_TERMINATOR: Final = b"\x00\x01"


# Keys of records


def is_canonical(columns: pa.Schema) -> bool:
    """Whether the key has the bytes of one of Kafka's serializers, and not those of a JSON array."""
    return len(columns) == 1 and (columns.field(0).type in _BYTES or columns.field(0).type in _NUMBERS)


def encode_keys(rows: pa.Table, key: Sequence[str]) -> list[bytes | None]:
    """The key of each row: None where all of its columns are null."""
    columns = pa.schema([rows.schema.field(name) for name in key])
    arrays = [take_column(rows, field) for field in columns]
    if not is_canonical(columns):
        return _encode_json(columns, arrays, rows.num_rows)
    if columns.field(0).type in _BYTES:
        return list(as_bytes(arrays[0]))
    return list(as_bytes(Numbers(arrays[0].type).encode(arrays[0])))


def encode_key(values: Mapping[str, Any], columns: pa.Schema) -> bytes | None:
    """The key with these values: the same bytes as those of `encode_keys`. ValueError if one does not fit its type."""
    if all(values.get(name) is None for name in columns.names):
        return None
    if not is_canonical(columns):
        checked = {field.name: _check(field, values.get(field.name)) for field in columns}
        arrays = [pa.array([checked[field.name]], field.type) for field in columns]
        return _encode_json(columns, arrays, 1)[0]
    field = columns.field(0)
    value = values[field.name]
    if field.type in _NUMBERS:
        number = float("nan") if value != value else value  # there are many NaNs, and Java writes only this one
        try:
            return _NUMBERS[field.type].pack(_check(field, number) if field.type != pa.float64() else number)
        except error:
            raise _misfit(field, value) from None
    if isinstance(value, str) == (field.type == pa.string()):
        return value.encode() if isinstance(value, str) else bytes(value)
    raise _misfit(field, value)


def decode_keys(keys: Sequence[bytes | None], columns: pa.Schema) -> pa.Table:
    """The columns of each key. ValueError with one line if a key does not fit the columns."""
    if not is_canonical(columns):
        arrays = _decode_json(keys, columns)
    elif columns.field(0).type in _BYTES:
        arrays = [_decode_bytes(keys, columns.field(0))]
    else:
        arrays = [_decode_numbers(keys, columns.field(0))]
    return pa.Table.from_arrays(arrays, schema=columns)


def _check(field: pa.Field, value: Any) -> Any:
    try:
        make_writer(field.type)(value)
    except ValueError as problem:
        raise ValueError(f"key column {field.name!r}: {problem}") from None
    return list(value.items()) if isinstance(value, dict) and pa.types.is_map(field.type) else value


def _misfit(field: pa.Field, value: Any) -> ValueError:
    return ValueError(f"key column {field.name!r}: {value!r:.60} is not {field.type}")


def _encode_json(columns: pa.Schema, arrays: list[pa.Array], rows: int) -> list[bytes | None]:
    if not arrays:
        return [b"[]"] * rows
    parts: list[Any] = []
    all_null = None
    for field, array in zip(columns, arrays, strict=True):
        check_type(field.type, field.name)
        parts += ["," if parts else "[", to_text(array)]
        all_null = array.is_null() if all_null is None else pc.and_(all_null, array.is_null())
    return list(as_bytes(pc.if_else(all_null, None, join(*parts, "]"))))


def _decode_bytes(keys: Sequence[bytes | None], field: pa.Field) -> pa.Array:
    found = pa.array(keys, pa.binary())
    try:
        return found.cast(field.type)
    except pa.ArrowInvalid:
        raise ValueError(f"key column {field.name!r}: a key is not UTF-8") from None


def _decode_numbers(keys: Sequence[bytes | None], field: pa.Field) -> pa.Array:
    column, bad = Numbers(field.type).decode(pa.array(keys, pa.binary()))
    for row, reason in bad.items():
        raise ValueError(f"key column {field.name!r}: {keys[row]!r:.60} is not {field.type}: {reason}")
    return column


def _decode_json(keys: Sequence[bytes | None], columns: pa.Schema) -> list[pa.Array]:
    nothing = [None] * len(columns)
    rows = [nothing if key is None else _load(key, columns) for key in keys]
    arrays = []
    for at, field in enumerate(columns):
        try:
            arrays.append(read_column([row[at] for row in rows], field.type))
        except ValueError as problem:
            raise ValueError(f"key column {field.name!r}: {problem}") from None
    return arrays


def _load(key: bytes, columns: pa.Schema) -> list[Any]:
    try:
        found = orjson.loads(key)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, list) or len(found) != len(columns):
        raise ValueError(f"key {key!r:.60} is not a JSON array of {', '.join(columns.names)}")
    return found


# Keys of windows and sessions


def encode_time(ms: int) -> bytes:
    """Eight bytes that are ordered as the times are, also for those before 1970."""
    return _TIME.pack(ms + _TIME_ZERO)


def decode_time(encoded: bytes) -> int:
    number: int = _TIME.unpack(encoded)[0]
    return number - _TIME_ZERO


def prefix_of(key: bytes) -> bytes:
    """What all keys of this key's windows and sessions begin with, and no others."""
    return key.replace(b"\x00", b"\x00\xff") + _TERMINATOR


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all those that begin with `prefix`; None if there is none, because it has only 0xFF."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def window_key(key: bytes, start_ms: int) -> bytes:
    return prefix_of(key) + encode_time(start_ms)


def split_window_key(encoded: bytes) -> tuple[bytes, int]:
    """The key and the start."""
    return _unescape(encoded[: -_TIME.size]), decode_time(encoded[-_TIME.size :])


def session_key(key: bytes, end_ms: int, start_ms: int) -> bytes:
    return prefix_of(key) + _TWO_TIMES.pack(end_ms + _TIME_ZERO, start_ms + _TIME_ZERO)


def split_session_key(encoded: bytes) -> tuple[bytes, int, int]:
    """The key, the end and the start."""
    end, start = encoded[-2 * _TIME.size : -_TIME.size], encoded[-_TIME.size :]
    return _unescape(encoded[: -2 * _TIME.size]), decode_time(end), decode_time(start)


def _unescape(prefix: bytes) -> bytes:
    return prefix[: -len(_TERMINATOR)].replace(b"\x00\xff", b"\x00")
