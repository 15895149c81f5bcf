"""The kernels of compaction: they index keys, decide which records stay, and copy those.

Like the kernel in `ottla.records.columns` they are Python functions that numba can compile. Interpreted and compiled
they have the same results for any bytes. `ottla.records.record` describes the layout of a record.

The table of keys is a hash table in a flat array of 64-bit words, three for each slot: a hash of 128 bits in two words,
and the offset plus one, which is zero in an empty slot. Keys with the same hash would be treated as one key, and the
older record would be lost. So the hash is SipHash-2-4 with a random seed, for which nobody can construct collisions.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

SOUND, BROKEN, FULL = range(3)

WORDS = 3
"""The number of words for each slot of the table."""

GROWTH_MAX = 14
"""How many bytes a record can grow when its batch gets another base timestamp: 9 in its timestamp delta, 5 in its
length."""

_MASK = (1 << 64) - 1
_BEYOND = 1 << 40
"""A position beyond the end of any batch: the result of reading a number that is not valid."""

_TIME_MIN, _TIME_MAX = -(1 << 63), (1 << 63) - 1
_RECORD_SIZE_MIN = 6
_LAST_SHIFT = 62


class Kernels(NamedTuple):
    index_keys: Callable[..., tuple[int, int, int]]
    judge: Callable[..., tuple[int, int, int, int, int, int]]
    copy: Callable[..., int]
    table: Callable[[int], Any]
    """Makes a table of this many words, all zero."""
    view: Callable[[Any], Any]
    """Converts a buffer to the form that the kernels read."""
    room: Callable[[int], Any]
    """Makes an uninitialized buffer of this size for the kernels to write to."""


@cache
def python_kernels() -> Kernels:
    from array import array

    return Kernels(index_keys, judge, copy, lambda words: array("Q", bytes(8 * words)), _same, bytearray)


@cache
def compiled_kernels() -> Kernels:
    """The kernels compiled by numba. If numba's cache is empty, this takes seconds."""
    import numba
    import numpy
    from numba.extending import overload, register_jitable

    overload(_unsigned)(lambda value: lambda value: numpy.uint64(value))
    overload(_signed)(lambda value: lambda value: numpy.int64(value))

    @overload(_move)
    def chosen(data: Any, start: int, end: int, output: Any, position: int) -> Callable[..., int]:
        return _move_one_by_one

    for function in (_read_number, _write_number, _size_of_number, _word, _rounds, _hash, _find):
        register_jitable(function)

    def compiled(signature: str, function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            made: Callable[..., Any] = numba.njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:  # no directory for the cache
            made = numba.njit(signature, nogil=True)(function)
        return made

    data, table, room = "Array(uint8, 1, 'C', readonly=True)", "uint64[::1]", "uint8[::1]"
    seed = "uint64, uint64"
    return Kernels(
        compiled(f"UniTuple(int64, 3)({data}, int64, int64, int64, {table}, int64, int64, {seed})", index_keys),
        compiled(f"UniTuple(int64, 6)({data}, int64, int64, int64, {table}, int64, boolean, {seed}, {room})", judge),
        compiled(f"int64({data}, int64, {room}, int64, {room})", copy),
        lambda words: numpy.zeros(words, numpy.uint64),
        lambda buffer: numpy.frombuffer(buffer, numpy.uint8) if len(buffer) else numpy.zeros(0, numpy.uint8),
        lambda size: numpy.empty(size, numpy.uint8),
    )


def _same(buffer: Any) -> Any:
    return buffer


# The kernels


def index_keys(
    data: Any,
    count: int,
    base_offset: int,
    first_offset: int,
    table: Any,
    used: int,
    room: int,
    seed_low: int,
    seed_high: int,
) -> tuple[int, int, int]:
    """Enters the offsets of the records with a key into the table, from `first_offset` on.

    Returns SOUND, BROKEN or FULL, the offset of the record for which the table was FULL, and the number of used slots.
    """
    size = len(data)
    position = 0
    for _ in range(count):
        length, position = _read_number(data, position, size)
        end = position + length
        if length < _RECORD_SIZE_MIN or end > size:
            return BROKEN, -1, used
        _, position = _read_number(data, position + 1, end)
        offset_delta, position = _read_number(data, position, end)
        key_length, position = _read_number(data, position, end)
        if position + max(key_length, 0) > end or offset_delta < 0:
            return BROKEN, -1, used
        offset = base_offset + offset_delta
        if key_length >= 0 and offset >= first_offset:
            low, high = _hash(data, position, key_length, seed_low, seed_high)
            place = _find(table, low, high)
            if table[place + 2] == 0:
                if used >= room:
                    return FULL, offset, used
                used += 1
                table[place] = low
                table[place + 1] = high
            table[place + 2] = _unsigned(offset + 1)
        position = end
    return (SOUND if position == size else BROKEN), -1, used


def judge(
    data: Any,
    count: int,
    base_offset: int,
    latest: int,
    table: Any,
    base_timestamp: int,
    keep_tombstones: bool,
    seed_low: int,
    seed_high: int,
    kept: Any,
) -> tuple[int, int, int, int, int, int]:
    """Decides which of `count` records stay, and sets the byte of each in `kept`.

    A record stays if no later record has its key. A tombstone stays only with `keep_tombstones`. Records after the
    offset `latest` are not in the table and stay. Records without a key do not. Returns SOUND or BROKEN, how many
    records stay, how many of these are tombstones, how many had no key, and the smallest and largest timestamp of the
    records that stay.
    """
    size = len(data)
    position = staying = tombstones = keyless = 0
    earliest, newest = _TIME_MAX, _TIME_MIN
    for number in range(count):
        length, position = _read_number(data, position, size)
        end = position + length
        if length < _RECORD_SIZE_MIN or end > size:
            return BROKEN, 0, 0, 0, 0, 0
        time_delta, position = _read_number(data, position + 1, end)
        offset_delta, position = _read_number(data, position, end)
        key_length, position = _read_number(data, position, end)
        key = position
        value_length, position = _read_number(data, position + max(key_length, 0), end)
        if position + max(value_length, 0) > end or offset_delta < 0:
            return BROKEN, 0, 0, 0, 0, 0
        offset = base_offset + offset_delta
        stays = offset > latest
        if not stays and key_length < 0:
            keyless += 1
        elif not stays and (value_length >= 0 or keep_tombstones):
            low, high = _hash(data, key, key_length, seed_low, seed_high)
            stays = offset + 1 >= _signed(table[_find(table, low, high) + 2])
        kept[number] = stays
        if stays:
            staying += 1
            if value_length < 0:
                tombstones += 1
            earliest = min(earliest, base_timestamp + time_delta)
            newest = max(newest, base_timestamp + time_delta)
        position = end
    return (SOUND if position == size else BROKEN), staying, tombstones, keyless, earliest, newest


def copy(data: Any, count: int, kept: Any, shift: int, output: Any) -> int:
    """Copies the records that stay to `output`. The base timestamp of their new batch is `shift` earlier than before.

    The records must be valid, which `judge` has checked. Returns the number of bytes written.
    """
    size = len(data)
    position = written = run = 0
    for number in range(count):
        start = position
        length, position = _read_number(data, position, size)
        end = position + length
        if not kept[number]:
            written = _move(data, run, start, output, written)
            run = end
        elif shift != 0:
            delta, rest = _read_number(data, position + 1, end)
            written = _write_number(output, written, 1 + _size_of_number(delta + shift) + end - rest)
            output[written] = data[position]
            written = _write_number(output, written + 1, delta + shift)
            written = _move(data, rest, end, output, written)
            run = end
        position = end
    return _move(data, run, position, output, written)


def _move(data: Any, start: int, end: int, output: Any, position: int) -> int:
    """Copies bytes. Returns the position after them in `output`."""
    output[position : position + end - start] = data[start:end]
    return position + end - start


def _move_one_by_one(data: Any, start: int, end: int, output: Any, position: int) -> int:
    """`_move` for numba, which compiles this loop to a fast copy, but takes three seconds to compile a slice."""
    for index in range(end - start):
        output[position + index] = data[start + index]
    return position + end - start


# Numbers


def _read_number(data: Any, position: int, end: int) -> tuple[int, int]:
    """Reads a zigzag varint. Returns its value and the position after it: `_BEYOND` if it is cut off or too long."""
    if position < 0 or position >= end:
        return 0, _BEYOND
    byte = data[position]
    position += 1
    value = (byte & 0x7F) >> 1
    sign = -(byte & 1)
    shift = 6
    while byte > 0x7F:
        if position >= end or shift > _LAST_SHIFT:
            return 0, _BEYOND
        byte = data[position]
        position += 1
        if shift == _LAST_SHIFT and byte > 1:
            return 0, _BEYOND
        value |= (byte & 0x7F) << shift
        shift += 7
    return value ^ sign, position


def _write_number(output: Any, position: int, value: int) -> int:
    """Writes a zigzag varint. Returns the position after it."""
    rest = _unsigned((value << 1) ^ (value >> 63))
    while rest > 0x7F:
        output[position] = _signed(rest & _unsigned(0x7F)) | 0x80
        position += 1
        rest = rest >> _unsigned(7)
    output[position] = _signed(rest)
    return position + 1


def _size_of_number(value: int) -> int:
    rest = _unsigned((value << 1) ^ (value >> 63))
    size = 1
    while rest > 0x7F:
        size += 1
        rest = rest >> _unsigned(7)
    return size


def _unsigned(value: int) -> int:
    return value & _MASK


def _signed(value: int) -> int:
    return value if value < 1 << 63 else value - (1 << 64)


# Keys


def _find(table: Any, low: int, high: int) -> int:
    """The position of the slot with this hash, or of the empty slot for it. The table always has an empty slot."""
    words = len(table)
    place = WORDS * _signed(low % _unsigned(words // WORDS))
    while table[place + 2] != 0 and not (table[place] == low and table[place + 1] == high):
        place += WORDS
        if place == words:
            place = 0
    return place


def _hash(data: Any, position: int, length: int, seed_low: int, seed_high: int) -> tuple[int, int]:
    """SipHash-2-4 with 128 bits, of a part of `data`."""
    v0 = _unsigned(0x736F6D6570736575) ^ seed_low
    v1 = _unsigned(0x646F72616E646F6D) ^ seed_high ^ _unsigned(0xEE)
    v2 = _unsigned(0x6C7967656E657261) ^ seed_low
    v3 = _unsigned(0x7465646279746573) ^ seed_high
    end = position + length
    while position + 8 <= end:
        word = _word(data, position, 8)
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3 ^ word, 2)
        v0 ^= word
        position += 8
    word = _word(data, position, end - position) | (_unsigned(length & 0xFF) << _unsigned(56))
    v0, v1, v2, v3 = _rounds(v0, v1, v2, v3 ^ word, 2)
    v0 ^= word
    v0, v1, v2, v3 = _rounds(v0, v1, v2 ^ _unsigned(0xEE), v3, 4)
    low = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _rounds(v0, v1 ^ _unsigned(0xDD), v2, v3, 4)
    return low, v0 ^ v1 ^ v2 ^ v3


def _word(data: Any, position: int, count: int) -> int:
    """Reads up to eight bytes as a little-endian number."""
    word = _unsigned(0)
    for index in range(count):
        word |= _unsigned(data[position + index]) << _unsigned(8 * index)
    return word


def _rounds(v0: int, v1: int, v2: int, v3: int, count: int) -> tuple[int, int, int, int]:
    for _ in range(count):
        v0 = _unsigned(v0 + v1)
        v1 = v0 ^ _unsigned((v1 << _unsigned(13)) | (v1 >> _unsigned(51)))
        v0 = _unsigned((v0 << _unsigned(32)) | (v0 >> _unsigned(32)))
        v2 = _unsigned(v2 + v3)
        v3 = v2 ^ _unsigned((v3 << _unsigned(16)) | (v3 >> _unsigned(48)))
        v0 = _unsigned(v0 + v3)
        v3 = v0 ^ _unsigned((v3 << _unsigned(21)) | (v3 >> _unsigned(43)))
        v2 = _unsigned(v2 + v1)
        v1 = v2 ^ _unsigned((v1 << _unsigned(17)) | (v1 >> _unsigned(47)))
        v2 = _unsigned((v2 << _unsigned(32)) | (v2 >> _unsigned(32)))
    return v0, v1, v2, v3
