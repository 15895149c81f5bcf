"""The encoding of one record in a batch, and functions that read and write records one at a time.

    length            varint: bytes that follow
    attributes        one byte, unused
    timestamp delta   varlong, from the batch's base timestamp
    offset delta      varint, from the batch's base offset
    key               varint length (-1: null), bytes
    value             varint length (-1: null), bytes
    headers           varint count, then for each: varint length and UTF-8 name, varint length (-1: null) and bytes

Varints are zigzag: 7 bits a byte, lowest first, the high bit says that more follow. This is for tests, control
records and small batches; whole columns of records are the business of `columns.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.records.compression import CorruptBatch

Headers = Sequence[tuple[str, bytes | None]]
Fields = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers and timestamp: a record without an offset."""

_RECORD_SIZE_MIN = 7
_HEADER_SIZE_MIN = 2
_VARINT_BYTES_MAX = 5
_VARLONG_BYTES_MAX = 10


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


_SHORT_VARINTS = tuple(bytes((value << 1,)) for value in range(64))
_NULL = b"\x01"


def encode_varint(value: int) -> bytes:
    if 0 <= value < 64:
        return _SHORT_VARINTS[value]
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_record(
    target: bytearray, timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    record = b"".join(
        (
            b"\0",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            _NULL if key is None else encode_varint(len(key)),
            key or b"",
            _NULL if value is None else encode_varint(len(value)),
            value or b"",
            _encode_headers(headers) if headers else b"\0",
        )
    )
    target += encode_varint(len(record))
    target += record


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (
            encode_varint(len(encoded)),
            encoded,
            _NULL if value is None else encode_varint(len(value)),
            value or b"",
        )
    return b"".join(parts)


def read_varint(data: bytes | bytearray, position: int, bytes_max: int = _VARINT_BYTES_MAX) -> tuple[int, int]:
    """The value and the position after it. IndexError at the end of `data`."""
    value = data[position]
    position += 1
    if value > 0x7F:
        value &= 0x7F
        for shift in range(7, 7 * bytes_max, 7):
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                break
        else:
            raise CorruptBatch(f"a number of more than {bytes_max} bytes")
        if value >> (32 if bytes_max == _VARINT_BYTES_MAX else 64):
            raise CorruptBatch(f"a number too large for {bytes_max} bytes")
    return (value >> 1) ^ -(value & 1), position


def _read_bytes(data: bytes | bytearray, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"a field of {length} bytes")
        return None, position
    if length > end - position:
        raise CorruptBatch(f"a field of {length} bytes where {end - position} are left")
    return bytes(data[position : position + length]), position + length


def _read_headers(data: bytes | bytearray, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not count:
        return (), position
    if not 0 < count * _HEADER_SIZE_MIN <= end - position:
        raise CorruptBatch(f"{count} record headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise CorruptBatch("a record header without a name")
        value, position = _read_bytes(data, position, end)
        # Producers may write any bytes. Kafka's own clients decode them with replacement characters too.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position


def read_records(
    data: bytes | bytearray, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> list[Record]:
    """The `count` records that fill `data`. CorruptBatch if they do not."""
    if not 0 <= count * _RECORD_SIZE_MIN <= len(data):
        raise CorruptBatch(f"{count} records in {len(data)} bytes")
    records: list[Record] = []
    position = 0
    try:
        for _ in range(count):
            length, position = read_varint(data, position)
            end = position + length
            if length < _RECORD_SIZE_MIN - 1 or end > len(data):
                raise CorruptBatch(f"a record of {length} bytes where {len(data) - position} are left")
            delta, position = read_varint(data, position + 1, _VARLONG_BYTES_MAX)
            offset_delta, position = read_varint(data, position)
            key, position = _read_bytes(data, position, end)
            value, position = _read_bytes(data, position, end)
            headers, position = _read_headers(data, position, end)
            if position != end:
                raise CorruptBatch(f"a record's fields end at {position}, the record at {end}")
            timestamp = base_timestamp + delta if append_time is None else append_time
            records.append(Record(base_offset + offset_delta, timestamp, key, value, headers))
    except IndexError:
        raise CorruptBatch("the records are cut off") from None
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes after the last record")
    return records
