"""The numba kernels that decode record batches into Arrow buffers.

`index_batches` finds the batches in a buffer. `decode_records` copies the requested parts of their records to the
buffers of the columns in one pass. `ottla.records.batch` and `ottla.records.record` describe the layout of batches and
records.

numba compiles the kernels when this module is imported, or loads them from its cache. Importing numba takes a second,
so only a process that decodes records should import this module. The kernels never read or write outside the used part
of their arrays, whatever the bytes are, as long as the caller (`decoding.py`) passes output buffers that are large
enough.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.extending import register_jitable

from ottla.pipeline.memcpy import copy_bytes

# Columns of the table of batches: where the records begin and end, and the fields of the header that decoding needs.
BEGIN, END, BASE_OFFSET, BASE_TIME, APPEND_TIME, COUNT, ATTRIBUTES = range(7)
TABLE_WIDTH = 7

# Entries of the array of tallies: how much of each output buffer is filled.
ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, NAME_BYTES, CONTENT_BYTES = range(6)
TALLIES = 6

LOG_APPEND_TIME = 8
NO_TIME = -(1 << 63)

_HEADER_SIZE = 61
_BEYOND = 1 << 40
"""A position beyond the end of any buffer: the result of reading something that is not valid."""
_MICROSECONDS = 1000
_TIME_MAX = ((1 << 63) - 1) // _MICROSECONDS

_int64: Any = np.int64
"""All kernels compute with signed 64-bit numbers. numba would turn a mix of signed and unsigned ones into floats."""

_BYTES = "Array(uint8, 1, 'C', readonly=True)"


def compiled(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a kernel for one signature or loads it from numba's cache. Without a directory for the cache, each
    process compiles it again."""

    def compile_kernel(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(signature, cache=True, nogil=True)(function)
        except RuntimeError:
            return numba.njit(signature, nogil=True)(function)

    return compile_kernel


@register_jitable
def read_big_endian(data: Any, position: int, size: int) -> Any:
    value = _int64(0)
    for index in range(size):
        value = value << 8 | _int64(data[position + index])
    return value


@register_jitable
def _number(data: Any, position: int, end: int) -> tuple[int, int]:
    """Reads a zigzag varint. Returns its value and the position after it: `_BEYOND` if it is cut off or too long."""
    if position < 0 or position >= end:
        return _int64(0), _int64(_BEYOND)
    byte = _int64(data[position])
    position += 1
    value = (byte & 0x7F) >> 1
    sign = -(byte & 1)
    shift = 6
    while byte > 0x7F:
        if position >= end or shift > 62:
            return _int64(0), _int64(_BEYOND)
        byte = _int64(data[position])
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value ^ sign, position


@compiled(f"int64({_BYTES}, int64, Array(int64, 2, 'C'))")
def index_batches(data: Any, position: int, table: Any) -> int:
    """Fills `table` with the complete batches from `position` on, as many as fit. Returns their number."""
    size = len(data)
    found = 0
    while found < len(table) and size - position >= _HEADER_SIZE:
        length = read_big_endian(data, position + 8, 4) + 12
        if length < _HEADER_SIZE or position + length > size:
            break
        attributes = read_big_endian(data, position + 21, 2)
        count = read_big_endian(data, position + 57, 4)
        table[found, BEGIN] = position + _HEADER_SIZE
        table[found, END] = position + length
        table[found, BASE_OFFSET] = read_big_endian(data, position, 8)
        table[found, BASE_TIME] = read_big_endian(data, position + 27, 8)
        append_time = _int64(NO_TIME)
        if attributes & LOG_APPEND_TIME:
            append_time = read_big_endian(data, position + 35, 8)
        table[found, APPEND_TIME] = append_time
        table[found, COUNT] = count
        table[found, ATTRIBUTES] = attributes
        position += length
        found += 1
    return found


@register_jitable
def _microseconds(time: int, delta: int) -> int:
    """The sum of two times in milliseconds, in microseconds. A result that does not fit is clamped."""
    if delta > 0 and time > _TIME_MAX - delta:
        time = _TIME_MAX
    elif delta < 0 and time < -_TIME_MAX - delta:
        time = -_TIME_MAX
    else:
        time += delta
    return min(max(time, -_TIME_MAX), _TIME_MAX) * _MICROSECONDS


@register_jitable
def _record(data: Any, position: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Parses the fixed part of a record. Returns its end (`_BEYOND` if the record is not valid), its timestamp delta
    and offset delta, position and length of its key and of its value, its number of headers and the position of the
    first."""
    length, position = _number(data, position, end)
    record_end = position + length
    if length < 0 or record_end > end:
        record_end = _int64(_BEYOND)
        position = end
    delta, position = _number(data, position + 1, min(record_end, end))
    offset, position = _number(data, position, min(record_end, end))
    key_length, key_at = _number(data, position, min(record_end, end))
    value_length, value_at = _number(data, key_at + max(key_length, 0), min(record_end, end))
    headers, position = _number(data, value_at + max(value_length, 0), min(record_end, end))
    if position > record_end or key_length < -1 or value_length < -1 or headers < 0:
        record_end = _int64(_BEYOND)
    return record_end, delta, offset, key_at, key_length, value_at, value_length, headers, position


@register_jitable
def _field(data: Any, at: int, length: int, row: int, place: int, ends: Any, content: Any, nulls: Any) -> int:
    """Copies one field to a column, or marks it as null. Returns the position after it in the column."""
    nulls[row] = length < 0
    if length > 0:
        copy_bytes(content, place, data, at, length)
        place += length
    ends[row + 1] = place
    return place


@register_jitable
def _header(
    data: Any,
    position: int,
    end: int,
    tallies: Any,
    name_ends: Any,
    names: Any,
    content_ends: Any,
    contents: Any,
    content_nulls: Any,
) -> Any:
    """Copies one record header. Returns the position after it, or `_BEYOND` if it is not valid."""
    name_length, name_at = _number(data, position, end)
    if name_length < 0 or name_at + name_length > end:
        return _int64(_BEYOND)
    length, content_at = _number(data, name_at + name_length, end)
    position = content_at + max(length, 0)
    if length < -1 or position > end:
        return _int64(_BEYOND)
    entry, place = tallies[HEADERS], tallies[NAME_BYTES]
    copy_bytes(names, place, data, name_at, name_length)
    tallies[NAME_BYTES] = place + name_length
    name_ends[entry + 1] = place + name_length
    tallies[CONTENT_BYTES] = _field(
        data, content_at, length, entry, tallies[CONTENT_BYTES], content_ends, contents, content_nulls
    )
    tallies[HEADERS] = entry + 1
    return position


@compiled(f"int64({_BYTES}, Array(int64, 2, 'C'), int64, int64)")
def count_headers(data: Any, table: Any, first: int, last: int) -> int:
    """An upper bound of the number of record headers in these batches. It trusts a record's header count only as far as
    the record's bytes allow it."""
    total = 0
    for batch in range(first, last):
        position, end = table[batch, BEGIN], table[batch, END]
        for _ in range(table[batch, COUNT]):
            found = _record(data, position, end)
            if found[0] == _BEYOND:
                break
            total += min(found[7], (found[0] - found[8]) // 2)
            position = found[0]
    return total


@compiled(
    f"int64({_BYTES}, Array(int64, 2, 'C'), int64, int64, int64, int64, boolean, boolean, boolean,"
    "Array(int64, 1, 'C'),"
    "Array(int64, 1, 'C'), Array(int64, 1, 'C'), Array(int32, 1, 'C'),"
    "Array(int32, 1, 'C'), Array(uint8, 1, 'C'), Array(uint8, 1, 'C'),"
    "Array(int32, 1, 'C'), Array(uint8, 1, 'C'), Array(uint8, 1, 'C'),"
    "Array(int32, 1, 'C'), Array(int32, 1, 'C'), Array(uint8, 1, 'C'),"
    "Array(int32, 1, 'C'), Array(uint8, 1, 'C'), Array(uint8, 1, 'C'))"
)
def decode_records(
    data: Any,
    table: Any,
    first: int,
    last: int,
    start: int,
    stop: int,
    with_keys: bool,
    with_values: bool,
    with_headers: bool,
    tallies: Any,
    offsets: Any,
    times: Any,
    time_types: Any,
    key_ends: Any,
    keys: Any,
    key_nulls: Any,
    value_ends: Any,
    values: Any,
    value_nulls: Any,
    header_ends: Any,
    name_ends: Any,
    names: Any,
    content_ends: Any,
    contents: Any,
    content_nulls: Any,
) -> int:
    """Copies those records of the batches `first` to `last` whose offsets are in the range `start` to `stop`.

    Returns `last`, or the index of the first batch that is not valid. In that case the output is incomplete, and the
    caller must not use it.
    """
    row, key_place, value_place = tallies[ROWS], tallies[KEY_BYTES], tallies[VALUE_BYTES]
    for batch in range(first, last):
        position, end, append_time = table[batch, BEGIN], table[batch, END], table[batch, APPEND_TIME]
        for _ in range(table[batch, COUNT]):
            record_end, delta, offset, key_at, key_length, value_at, value_length, headers, position = _record(
                data, position, end
            )
            if record_end == _BEYOND:
                return batch
            offset += table[batch, BASE_OFFSET]
            if start <= offset < stop:
                offsets[row] = offset
                by_producer = append_time == NO_TIME
                base, delta = (table[batch, BASE_TIME], delta) if by_producer else (append_time, 0)
                times[row] = _microseconds(base, delta)
                time_types[row] = 0 if by_producer else 1
                if with_keys:
                    key_place = _field(data, key_at, key_length, row, key_place, key_ends, keys, key_nulls)
                if with_values:
                    value_place = _field(
                        data, value_at, value_length, row, value_place, value_ends, values, value_nulls
                    )
                if with_headers:
                    while headers > 0 and position < record_end:
                        position = _header(
                            data, position, record_end, tallies, name_ends, names, content_ends, contents, content_nulls
                        )
                        headers -= 1
                    if position != record_end or headers:
                        return batch
                    header_ends[row + 1] = tallies[HEADERS]
                row += 1
            position = record_end
    tallies[ROWS], tallies[KEY_BYTES], tallies[VALUE_BYTES] = row, key_place, value_place
    return last
