"""Checks all records of a batch in one pass, in Python or as machine code.

`survey` reads every record (record.py has their encoding) without making objects of them, and stops at the first one
that fails a check:

    STRUCTURE   lengths that do not fit, numbers that are too long, a record header without a name
    OFFSET      the offset delta is not the position of the record in the batch
    MISSING     fewer records than the batch says
    SURPLUS     bytes after the last record
    NO_KEY      a record without a key where keys are required
    TIME        a timestamp outside of the bounds, or of 64 bits

The first four end a survey. After the last two it can continue after the record, so that all such records are found.

The same source runs in two ways. `survey` is Python and takes about 3 us per record. `compile_survey` has numba compile
it to machine code, which is three hundred times as fast; but numba costs a second and 100 MB, so it is imported only
there. The machine code is kept in numba's cache: beside this file if that is writable, else in the user's cache
directory; without either it is compiled in each process. Both ways give the same result for any bytes: numbers are
composed so that no step needs more than 64 bits.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

Bytes = bytes | bytearray | memoryview

SOUND, STRUCTURE, OFFSET, MISSING, SURPLUS, NO_KEY, TIME = range(7)

NO_TIMESTAMP = -1
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1

_BEYOND = 1 << 40
"""A position that no batch reaches. After something unreadable, reading continues here and so ends."""

# A number's first byte gives its sign and 6 bits, every other byte 7. The last byte that a number of 32 (64) bits may
# have goes to bit 27 (62) and has room for 4 bits (1 bit).
_LAST_SHIFT_32, _LAST_SHIFT_64 = 27, 62
_LAST_BYTE_32, _LAST_BYTE_64 = 0x0F, 0x01

_RECORD_SIZE_MIN = 6
_HEAD_SIZE = 8

_SIGNATURE = f"UniTuple(int64, 5)(Array(uint8, 1, 'C', readonly=True), {'int64, ' * 8}boolean)"
"""One signature for all buffers: a writable one is accepted as a read-only one."""


class Bounds(NamedTuple):
    """What each record must satisfy, besides being readable."""

    base_timestamp: int = 0
    earliest: int = TIME_MIN
    latest: int = TIME_MAX
    keys_required: bool = False


class Survey(NamedTuple):
    """The result of a survey: how far it came, and why it stopped."""

    verdict: int
    record: int
    """Position in the batch of the record that failed; the number of records if none did."""
    position: int
    """Where that record ends, if the survey can continue."""
    max_timestamp: int
    """The largest timestamp of the records that passed so far."""
    timestamp: int
    """Timestamp of the record that failed, if it could be read; limited to 64 bits."""


Surveyor = Callable[[Bytes, int, Bounds, Survey], Survey]

BEGIN = Survey(SOUND, -1, 0, NO_TIMESTAMP, NO_TIMESTAMP)


def survey(data: Bytes, count: int, bounds: Bounds, after: Survey = BEGIN) -> Survey:
    """Check `count` records that should fill `data`. `after` is the result of an earlier survey to continue."""
    found = _survey(data, len(data), count, after.record + 1, after.position, after.max_timestamp, *bounds)
    return Survey._make(found)


def is_plain_record(data: Bytes, position: int, keys_required: bool) -> bool:
    """Whether one record of the simplest form fills `data` from `position` on: timestamp and offset delta 0, a short
    key or none, a value below 8 KiB or none, no headers. If not, a survey has to check it.

    For producers that send record by record: a survey of one record costs four times as much.
    """
    end = len(data)
    if (
        not keys_required
        and data[position : position + _HEAD_SIZE] == _make_keyless_head(end - position)
        and not data[-1]
    ):
        return True
    try:
        length = data[position]
        position += 1
        if length > 0x7F:
            length += (data[position] << 7) - 0x80
            position += 1
        if length & 1 or position + (length >> 1) != end or data[position + 1] or data[position + 2]:
            return False
        key = data[position + 3]
        position += 4
        if key != 1:
            position += key >> 1
        value = data[position]
        position += 1
        if value > 0x7F:
            value += (data[position] << 7) - 0x80
            position += 1
        if value != 1:
            position += value >> 1
        if key > 0x7F or (key & 1 and (key > 1 or keys_required)) or (value & 1 and value > 1):
            return False
        return length <= 0x3FFF and value <= 0x3FFF and position + 1 == end and data[position] == 0
    except IndexError:
        return False


@lru_cache(1024)
def _make_keyless_head(size: int) -> bytes | None:
    """The first bytes of a plain record with no key and a value of 64 bytes or more: its size determines them.

    None if no such record has this size. To compare bytes is a fifth of the work of reading them.
    """
    length, value = size - 2, size - 9
    if value < 64 or length >= 1 << 13:
        return None
    return bytes((length << 1 & 0x7F | 0x80, length >> 6, 0, 0, 0, 1, value << 1 & 0x7F | 0x80, value >> 6))


@cache
def compile_survey() -> Surveyor:
    """`survey` as machine code. Takes a second, or several if numba's cache is empty: call it in a thread."""
    import numba
    import numpy
    from numba.extending import register_jitable

    for function in (_read_number, _read_length, _skip_headers, _read_time):
        register_jitable(function)
    try:
        kernel = numba.njit(_SIGNATURE, nogil=True, cache=True)(_survey)
    except RuntimeError:  # no directory for the cache
        kernel = numba.njit(_SIGNATURE, nogil=True)(_survey)
    view, byte = numpy.frombuffer, numpy.uint8

    def compiled(data: Bytes, count: int, bounds: Bounds, after: Survey = BEGIN) -> Survey:
        if not len(data):  # numpy makes no array of nothing
            return survey(data, count, bounds, after)
        array = view(data, byte)
        found = kernel(array, len(data), count, after.record + 1, after.position, after.max_timestamp, *bounds)
        return Survey._make(found)

    return compiled


# The kernel: Python that numba can compile. A position at or after `end` is never read, so whatever goes wrong on the
# way to the end of a record shows in one comparison there.


def _survey(
    data: Any,
    size: int,
    count: int,
    index: int,
    position: int,
    max_timestamp: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    keys_required: bool,
) -> tuple[int, int, int, int, int]:
    while index < count:
        if position == size:
            return MISSING, index, position, max_timestamp, NO_TIMESTAMP
        length, position = _read_number(data, position, size, _LAST_SHIFT_32, _LAST_BYTE_32)
        end = position + length
        if length < _RECORD_SIZE_MIN or end > size:
            return STRUCTURE, index, position, max_timestamp, NO_TIMESTAMP
        time_delta, position = _read_number(data, position + 1, end, _LAST_SHIFT_64, _LAST_BYTE_64)
        offset_delta, position = _read_number(data, position, end, _LAST_SHIFT_32, _LAST_BYTE_32)
        key_length, position = _read_length(data, position, end)
        _, position = _read_length(data, position, end)
        header_count, position = _read_number(data, position, end, _LAST_SHIFT_32, _LAST_BYTE_32)
        if header_count != 0:
            position = _skip_headers(data, position, end, header_count)
        if position != end:
            return STRUCTURE, index, position, max_timestamp, NO_TIMESTAMP
        position = end  # says nothing new, but now the processor begins the next record before it is done with this one
        if offset_delta != index:
            return OFFSET, index, position, max_timestamp, NO_TIMESTAMP
        timestamp, fits = _read_time(base_timestamp, time_delta)
        if keys_required and key_length < 0:
            return NO_KEY, index, position, max_timestamp, timestamp
        if not fits or ((timestamp < earliest or timestamp > latest) and timestamp != NO_TIMESTAMP):
            return TIME, index, position, max_timestamp, timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        index += 1
    if position != size:
        return SURPLUS, index, position, max_timestamp, NO_TIMESTAMP
    return SOUND, index, position, max_timestamp, NO_TIMESTAMP


def _read_number(data: Any, position: int, end: int, last_shift: int, last_byte: int) -> tuple[int, int]:
    """A zigzag number and the position after it, which is `_BEYOND` if it is cut off or too large.

    No position is ever negative. To say so spares the machine code the question whether it counts from the end.
    """
    if position < 0 or position >= end:
        return 0, _BEYOND
    byte = data[position]
    position += 1
    value = (byte & 0x7F) >> 1
    sign = -(byte & 1)
    shift = 6
    while byte > 0x7F:
        if position >= end:
            return 0, _BEYOND
        byte = data[position]
        position += 1
        if shift == last_shift and byte > last_byte:
            return 0, _BEYOND
        value |= (byte & 0x7F) << shift
        shift += 7
    return value ^ sign, position


def _read_length(data: Any, position: int, end: int) -> tuple[int, int]:
    """The length of a field, -1 if it is null, and the position after the field."""
    length, position = _read_number(data, position, end, _LAST_SHIFT_32, _LAST_BYTE_32)
    if length < -1:
        return length, _BEYOND
    return length, position + max(length, 0)


def _skip_headers(data: Any, position: int, end: int, count: int) -> int:
    if count < 0:
        return _BEYOND
    while count > 0 and position < end:
        length, position = _read_length(data, position, end)
        if length < 0:
            return _BEYOND
        _, position = _read_length(data, position, end)
        count -= 1
    return position if count == 0 else _BEYOND


def _read_time(base: int, delta: int) -> tuple[int, bool]:
    """The sum, and whether it fits 64 bits. It is not added up before that is known: compiled code may not overflow."""
    if delta > 0 and base > TIME_MAX - delta:
        return TIME_MAX, False
    if delta < 0 and base < TIME_MIN - delta:
        return TIME_MIN, False
    return base + delta, True
