"""The numba kernels that encode Arrow rows as records: they choose each row's partition and write its record.

numba compiles a kernel on its first use and keeps it in its cache. In the writing half of the pipeline only this module
imports numba, so a Spark driver, which encodes nothing, does not have to.

A column of bytes is a tuple of the offsets (int32, one more than there are rows), the bytes, the validity bitmap (empty
if no row is null), and the position of the first row's bit in the bitmap.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from ottla.pipeline.memcpy import copy_bytes

Function = TypeVar("Function", bound=Callable[..., Any])

_wide: Any = np.int64
"""Widens a number from a narrower array, so that arithmetic has 64 bits."""

_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF

_FIXED_SIZE_MAX = 26
"""An upper bound of what a record takes in addition to its key, value and headers: one byte each for attributes and
timestamp delta, and 24 for length, offset delta, key length, value length and header count. Each of these five takes at
most five bytes; a record in which all of them do would be larger than 256 MB."""

DELTA_SIZE_MAX = 10
"""An upper bound of what the timestamp delta takes if records have timestamps of their own."""

_HEADER_SIZE_MAX = 10
"""An upper bound of what the two lengths of a record header take."""


def _compiled(function: Function) -> Function:
    """Compiles a kernel with numba's cache, or without one if there is no directory for it."""
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast(Function, numba.njit(nogil=True)(function))


@_compiled
def murmur2(data: Any, start: int, end: int) -> int:
    """The hash that the Java client's partitioner uses for keys, with its sign bit cleared."""
    length = end - start
    mixed = (_MURMUR_SEED ^ length) & _MASK
    position = start
    while end - position >= 4:
        word = (
            _wide(data[position])
            | _wide(data[position + 1]) << 8
            | _wide(data[position + 2]) << 16
            | _wide(data[position + 3]) << 24
        )
        word = (word * _MURMUR_FACTOR) & _MASK
        word ^= word >> 24
        word = (word * _MURMUR_FACTOR) & _MASK
        mixed = ((mixed * _MURMUR_FACTOR) & _MASK) ^ word
        position += 4
    rest = end - position
    if rest >= 3:
        mixed ^= _wide(data[position + 2]) << 16
    if rest >= 2:
        mixed ^= _wide(data[position + 1]) << 8
    if rest >= 1:
        mixed ^= _wide(data[position])
        mixed = (mixed * _MURMUR_FACTOR) & _MASK
    mixed ^= mixed >> 13
    mixed = (mixed * _MURMUR_FACTOR) & _MASK
    mixed ^= mixed >> 15
    return mixed & 0x7FFFFFFF


@_compiled
def _is_null(bitmap: Any, first_bit: int, row: int) -> bool:
    if len(bitmap) == 0:
        return False
    bit = first_bit + row
    return bool((bitmap[bit >> 3] >> (bit & 7)) & 1 == 0)


@_compiled
def choose_targets(
    topic_of_row: Any,
    given: Any,
    given_bitmap: Any,
    given_bit: int,
    key: Any,
    sizes: Any,
    first_target: Any,
    partition_count: Any,
    sticky: Any,
    sticky_bytes: Any,
    sticky_limit: int,
    targets: Any,
) -> int:
    """Fills `targets` with the target of each row: the first target of its topic plus its partition. Returns -1, or the
    first row that names a partition which its topic does not have.

    Rows without a key go to the topic's sticky partition. After `sticky_limit` bytes the next partition becomes the
    sticky one.
    """
    key_offsets, key_data, key_bitmap, key_bit = key
    for row in range(len(targets)):
        topic = topic_of_row[row] if len(topic_of_row) else 0
        count = partition_count[topic]
        if len(given) and not _is_null(given_bitmap, given_bit, row):
            partition = _wide(given[row])
            if partition < 0 or partition >= count:
                return row
        elif len(key_offsets) and not _is_null(key_bitmap, key_bit, row):
            partition = murmur2(key_data, _wide(key_offsets[row]), _wide(key_offsets[row + 1])) % count
        else:
            partition = sticky[topic]
            sticky_bytes[topic] += sizes[row]
            if sticky_bytes[topic] >= sticky_limit:
                sticky[topic] = (partition + 1) % count
                sticky_bytes[topic] = 0
        targets[row] = first_target[topic] + partition
    return -1


@_compiled
def measure(key: Any, value: Any, header_offsets: Any, header_name: Any, header_value: Any, sizes: Any) -> None:
    """Fills `sizes` with an upper bound of the size of each row's record."""
    for row in range(len(sizes)):
        size = _FIXED_SIZE_MAX
        if len(key[0]):
            size += key[0][row + 1] - key[0][row]
        if len(value[0]):
            size += value[0][row + 1] - value[0][row]
        if len(header_offsets):
            first, last = header_offsets[row], header_offsets[row + 1]
            size += (last - first) * _HEADER_SIZE_MAX
            size += header_name[0][last] - header_name[0][first] + header_value[0][last] - header_value[0][first]
        sizes[row] = size


@_compiled
def group(targets: Any, sizes: Any, begins: Any, group_bytes: Any, order: Any) -> None:
    """Fills `order` with the rows sorted by target; rows with the same target keep their order. The rows of target t
    are order[begins[t]:begins[t + 1]], and `group_bytes` has the sum of their sizes."""
    for row in range(len(targets)):
        begins[targets[row] + 1] += 1
        group_bytes[targets[row]] += sizes[row]
    for target in range(1, len(begins)):
        begins[target] += begins[target - 1]
    place = begins[:-1].copy()
    for row in range(len(targets)):
        target = targets[row]
        order[place[target]] = row
        place[target] += 1


@_compiled
def _varint_size(value: int) -> int:
    """The size of a non-negative number as a zigzag varint, the encoding of all numbers in a record."""
    return _unsigned_size(value << 1)


@_compiled
def _unsigned_size(value: int) -> int:
    size = 1
    value >>= 7
    while value:
        size += 1
        value >>= 7
    return size


@_compiled
def _write_varint(out: Any, position: int, value: int) -> int:
    return _write_unsigned(out, position, value << 1)


@_compiled
def _write_unsigned(out: Any, position: int, value: int) -> int:
    while value > 0x7F:
        out[position] = value & 0x7F | 0x80
        position += 1
        value >>= 7
    out[position] = value
    return position + 1


@_compiled
def _zigzag(value: int) -> int:
    """Makes a number of either sign one that is not negative: small ones stay small."""
    return (value << 1) ^ (value >> 63)


@_compiled
def _field_length(offsets: Any, bitmap: Any, first_bit: int, row: int) -> int:
    """The length of a field, or -1 if it is null. In a missing column all fields are null."""
    if len(offsets) == 0 or _is_null(bitmap, first_bit, row):
        return -1
    return int(offsets[row + 1]) - int(offsets[row])


@_compiled
def _field_size(length: int) -> int:
    """The size of a field in a record, including the length before it."""
    return 1 if length < 0 else _varint_size(length) + length


@_compiled
def _write_field(out: Any, position: int, offsets: Any, data: Any, row: int, length: int) -> int:
    if length < 0:
        out[position] = 1
        return position + 1
    position = _write_varint(out, position, length)
    copy_bytes(out, position, data, offsets[row], length)
    return position + length


@_compiled
def write_records(
    out: Any,
    position: int,
    limit: int,
    order: Any,
    first: int,
    last: int,
    key: Any,
    value: Any,
    headers: Any,
    times: Any,
) -> tuple[int, int, int]:
    """Writes the records of the rows order[first:last] to `out`, as many as fit before `limit`. Returns the index in
    `order` of the first row that was not written, the position after the last record, and the highest timestamp. At
    least one record must fit.

    `times` has the timestamp of each row, and the first record's is that of the batch; an empty array means that all
    records have the timestamp of their batch.

    The tuples are unpacked before the loop, because compiled code counts a reference each time it takes an array from a
    tuple.
    """
    key_offsets, key_data, key_bitmap, key_bit = key
    value_offsets, value_data, value_bitmap, value_bit = value
    header_offsets, header_bitmap, header_bit, names, contents = headers
    name_offsets, name_data, name_bitmap, name_bit = names
    content_offsets, content_data, content_bitmap, content_bit = contents
    base = times[order[first]] if len(times) else 0
    highest = base
    index = first
    while index < last:
        row = order[index]
        delta = _zigzag(times[row] - base) if len(times) else 0
        header_first, header_last = 0, 0
        if len(header_offsets) and not _is_null(header_bitmap, header_bit, row):
            header_first, header_last = int(header_offsets[row]), int(header_offsets[row + 1])
        key_length = _field_length(key_offsets, key_bitmap, key_bit, row)
        value_length = _field_length(value_offsets, value_bitmap, value_bit, row)
        size = 1 + _unsigned_size(delta) + _varint_size(index - first)
        size += _field_size(key_length) + _field_size(value_length)
        size += _varint_size(header_last - header_first)
        for header in range(header_first, header_last):
            size += _field_size(_field_length(name_offsets, name_bitmap, name_bit, header))
            size += _field_size(_field_length(content_offsets, content_bitmap, content_bit, header))
        if position + _varint_size(size) + size > limit:
            break
        position = _write_varint(out, position, size)
        out[position] = 0  # attributes
        position = _write_unsigned(out, position + 1, delta)
        position = _write_varint(out, position, index - first)
        position = _write_field(out, position, key_offsets, key_data, row, key_length)
        position = _write_field(out, position, value_offsets, value_data, row, value_length)
        position = _write_varint(out, position, header_last - header_first)
        for header in range(header_first, header_last):
            length = _field_length(name_offsets, name_bitmap, name_bit, header)
            position = _write_field(out, position, name_offsets, name_data, header, length)
            length = _field_length(content_offsets, content_bitmap, content_bit, header)
            position = _write_field(out, position, content_offsets, content_data, header, length)
        if len(times):
            highest = max(highest, times[row])
        index += 1
    return index, position, highest
