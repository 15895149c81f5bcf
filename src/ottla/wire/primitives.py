"""The primitive types of the protocol, for the hand-written codecs (Produce and Fetch).

Versions differ mostly in how lengths are encoded:

    classic    string: int16 length; array and records: int32 length; null is length -1
    compact    all three: unsigned varint of length + 1, null is 0; every structure ends with its tagged fields

There is a `Reader` and a `Writer` for classic versions, and a subclass of each for compact ones. A reader trusts
nothing: it compares lengths and counts with the remaining bytes before it allocates anything. Besides `Malformed` it
raises the errors of `struct`, indexing and UTF-8 decoding; a codec turns these into `Malformed` in one place
(`READ_ERRORS`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from ottla.wire.malformed import Malformed

Bytes = bytes | bytearray | memoryview
Tags = Sequence[tuple[int, Bytes]]

READ_ERRORS = (struct_error, IndexError, UnicodeDecodeError)
ZERO_UUID = bytes(16)

_NOTHING = memoryview(b"")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NULL_STRING = b"\xff\xff"


class NodeEndpoint(NamedTuple):
    """The address of a broker that a response names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Reader:
    """A position in a buffer, in the classic encoding."""

    __slots__ = ("end", "position", "view")

    def __init__(self, view: memoryview, position: int = 0) -> None:
        self.view = view
        self.position = position
        self.end = len(view)

    def fixed(self, layout: Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self.view, self.position)
        self.position += layout.size
        return values

    def span(self, length: int) -> memoryview:
        """The next `length` bytes, without a copy."""
        position = self.position
        if length > self.end - position:
            raise Malformed(f"{length} bytes announced, {self.end - position} left")
        self.position = position + length
        return self.view[position : position + length]

    def count(self, smallest: int) -> int:
        """The number of elements of an array, each of at least `smallest` bytes."""
        count = self.nullable_count(smallest)
        if count is None:
            raise Malformed("null where an array must be")
        return count

    def nullable_count(self, smallest: int) -> int | None:
        count = self._length()
        if count * smallest > self.end - self.position:
            raise Malformed(f"{count} elements announced, {self.end - self.position} bytes left")
        return None if count == -1 else count

    def rows(self, layout: Struct) -> Iterator[tuple[Any, ...]]:
        """An array whose elements all have one fixed layout."""
        return layout.iter_unpack(self.span(self.count(layout.size) * layout.size))

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise Malformed("null where a string must be")
        return value

    def nullable_string(self) -> str | None:
        length = self._string_length()
        return None if length == -1 else str(self.span(length), "utf-8")

    def records(self) -> memoryview | None:
        length = self._length()
        if length <= 0:
            return None if length else _NOTHING
        return self.span(length)

    def uuid(self) -> bytes:
        return bytes(self.span(16))

    def endpoints(self) -> list[NodeEndpoint]:
        found = []
        for _ in range(self.count(11)):
            (node_id,), host, (port,) = self.fixed(_INT32), self.string(), self.fixed(_INT32)
            found.append(NodeEndpoint(node_id, host, port, self.nullable_string()))
            self.skip_tags()
        return found

    def tags(self) -> Iterator[tuple[int, Reader]]:
        """Each tagged field with a reader of its own. A field that is read must be read to its end."""
        return iter(())

    def skip_tags(self) -> None:
        for _ in self.tags():
            pass

    def finish(self) -> None:
        if self.position != self.end:
            raise Malformed(f"{self.end - self.position} bytes left over")

    def _length(self) -> int:
        length: int = _INT32.unpack_from(self.view, self.position)[0]
        self.position += 4
        return _check_length(length)

    def _string_length(self) -> int:
        length: int = _INT16.unpack_from(self.view, self.position)[0]
        self.position += 2
        return _check_length(length)


def _check_length(length: int) -> int:
    if length < -1:
        raise Malformed(f"length {length}")
    return length


class CompactReader(Reader):
    """A position in a buffer, in the compact encoding."""

    __slots__ = ()

    def unsigned_varint(self) -> int:
        value, self.position = read_unsigned_varint(self.view, self.position)
        return value

    def tags(self) -> Iterator[tuple[int, Reader]]:
        count = self.unsigned_varint()
        return self._tags(count) if count else iter(())

    def _tags(self, count: int) -> Iterator[tuple[int, Reader]]:
        last = -1
        for _ in range(count):
            tag = self.unsigned_varint()
            if tag <= last:
                raise Malformed(f"tagged field {tag} after {last}")
            last = tag
            field = CompactReader(self.span(self.unsigned_varint()))
            yield tag, field
            if field.position:
                field.finish()

    def _length(self) -> int:
        return self.unsigned_varint() - 1

    def _string_length(self) -> int:
        return self.unsigned_varint() - 1


def reader(view: memoryview, position: int, compact: bool) -> Reader:
    return CompactReader(view, position) if compact else Reader(view, position)


class Writer:
    """Appends values to bytes, in the classic encoding."""

    __slots__ = ("out",)

    def __init__(self, out: bytearray) -> None:
        self.out = out

    def fixed(self, layout: Struct, *values: int) -> None:
        self.out += layout.pack(*values)

    def count(self, count: int | None) -> None:
        """Write the length of an array; None is a null array."""
        self.out += _INT32.pack(-1 if count is None else count)

    def string(self, value: str | None) -> None:
        if value is None:
            self.out += _NULL_STRING
        else:
            encoded = value.encode()
            self.out += _INT16.pack(len(encoded))
            self.out += encoded

    def uuid(self, value: bytes) -> None:
        if len(value) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
        self.out += value

    def endpoints(self, endpoints: Sequence[NodeEndpoint]) -> None:
        self.count(len(endpoints))
        for node_id, host, port, rack in endpoints:
            self.fixed(_INT32, node_id)
            self.string(host)
            self.fixed(_INT32, port)
            self.string(rack)
            self.tags(())

    def tags(self, fields: Tags) -> None:
        """Write the tagged fields of a structure, in the order of their tags. Classic versions have none."""


class CompactWriter(Writer):
    """Appends values to bytes, in the compact encoding."""

    __slots__ = ()

    def count(self, count: int | None) -> None:
        self.out += unsigned_varint(0 if count is None else count + 1)

    def string(self, value: str | None) -> None:
        if value is None:
            self.out.append(0)
        else:
            encoded = value.encode()
            self.out += unsigned_varint(len(encoded) + 1)
            self.out += encoded

    def tags(self, fields: Tags) -> None:
        if not fields:
            self.out.append(0)
            return
        self.out += unsigned_varint(len(fields))
        for tag, body in fields:
            self.out += unsigned_varint(tag)
            self.out += unsigned_varint(len(body))
            self.out += body


def writer(out: bytearray, compact: bool) -> Writer:
    return CompactWriter(out) if compact else Writer(out)


def read_unsigned_varint(view: Bytes, position: int) -> tuple[int, int]:
    """The value at `position`, and the position after it: up to five bytes, seven bits in each, lowest first."""
    value = view[position]
    if value < 0x80:
        return value, position + 1
    byte = view[position + 1]
    if byte < 0x80:
        return value & 0x7F | byte << 7, position + 2
    value = value & 0x7F | (byte & 0x7F) << 7
    for shift in (14, 21, 28):
        byte = view[position + shift // 7]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + shift // 7 + 1
    raise Malformed("a varint of more than five bytes")


_SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))


def unsigned_varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _SHORT_VARINTS[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytearray:
    """The content of a tagged field with node endpoints."""
    out = bytearray()
    CompactWriter(out).endpoints(endpoints)
    return out
