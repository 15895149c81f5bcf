"""Decodes the messages of pgoutput, PostgreSQL's plugin for logical decoding, of protocol version 1.

Values stay the texts that the server sends; what they mean depends on the type of their column (`column_types.py`).
This is the innermost loop of change capture, so it makes no objects besides the values and one tuple for each change.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla.connect.errors import ConnectError

UNCHANGED: Final = b"\xff unchanged"
"""Stands for a large value that an update did not touch: it is not in the log. No text in UTF-8 is like it."""

Row = list[bytes | None]

_BEGIN, _COMMIT, _RELATION = ord("B"), ord("C"), ord("R")
_INSERT, _UPDATE, _DELETE, _TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
_IGNORED: Final = frozenset(b"YOM")
"""Types, origins and messages."""
_TEXT, _NULL, _TOAST = ord("t"), ord("n"), ord("u")
_NEW: Final = ord("N")
EPOCH_US: Final = 946_684_800_000_000
"""PostgreSQL counts time from the year 2000."""


@dataclass(frozen=True)
class RelationColumn:
    name: str
    type_oid: int
    modifier: int


@dataclass(frozen=True)
class Relation:
    """A table as it was when its changes were logged."""

    oid: int
    schema: str
    table: str
    identity: str
    """REPLICA IDENTITY: d(efault), n(othing), f(ull) or i(ndex)."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Begin:
    commit_lsn: int
    time_us: int
    """When the transaction was committed, in microseconds since 1970."""
    xid: int


@dataclass(frozen=True)
class Commit:
    end_lsn: int


@dataclass(frozen=True)
class Truncate:
    relations: tuple[int, ...]
    lsn: int


Change = tuple[str, int, Row | None, Row | None, int]
"""c, u or d; the table's oid; the row before, as far as it was logged; the row after; and the LSN."""
Message = Change | Begin | Commit | Relation | Truncate


def decode(messages: Iterable[tuple[int, bytes]]) -> Iterator[Message]:
    """The messages with their LSNs. ConnectError if one is not as the protocol says."""
    for lsn, data in messages:
        kind = data[0]
        try:
            if kind == _INSERT:
                yield "c", int.from_bytes(data[1:5]), None, _read_row(data, 6)[0], lsn
            elif kind == _UPDATE:
                yield _decode_update(data, lsn)
            elif kind == _DELETE:
                yield "d", int.from_bytes(data[1:5]), _read_row(data, 6)[0], None, lsn
            elif kind == _BEGIN:
                time_us = int.from_bytes(data[9:17], signed=True) + EPOCH_US
                yield Begin(int.from_bytes(data[1:9]), time_us, int.from_bytes(data[17:21]))
            elif kind == _COMMIT:
                yield Commit(int.from_bytes(data[10:18]))
            elif kind == _RELATION:
                yield _decode_relation(data)
            elif kind == _TRUNCATE:
                count = int.from_bytes(data[1:5])
                oids = tuple(int.from_bytes(data[at : at + 4]) for at in range(6, 6 + 4 * count, 4))
                yield Truncate(oids, lsn)
            elif kind not in _IGNORED:
                raise ConnectError(f"pgoutput sent a message of the unknown type {data[:1]!r}")
        except (IndexError, UnicodeDecodeError):
            raise ConnectError(f"pgoutput sent a message that ends too early: {data[:20]!r}") from None


def _decode_update(data: bytes, lsn: int) -> Change:
    """The old row is there if the replica identity is FULL, or if a column of it has changed."""
    oid = int.from_bytes(data[1:5])
    if data[5] == _NEW:
        return "u", oid, None, _read_row(data, 6)[0], lsn
    old, at = _read_row(data, 6)
    return "u", oid, old, _read_row(data, at + 1)[0], lsn


def _read_row(data: bytes, at: int) -> tuple[Row, int]:
    """The values of a row that begins at a place, and where it ends."""
    values: Row = []
    add = values.append
    count = data[at] << 8 | data[at + 1]
    at += 2
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + (data[at + 1] << 24 | data[at + 2] << 16 | data[at + 3] << 8 | data[at + 4])
            add(data[start:at])
        else:
            if kind == _NULL:
                add(None)
            elif kind == _TOAST:
                add(UNCHANGED)
            else:
                raise ConnectError(f"pgoutput sent a value of the unknown format {chr(kind)!r}")
            at += 1
    if at > len(data):
        raise IndexError
    return values, at


def _decode_relation(data: bytes) -> Relation:
    schema, at = _read_name(data, 5)
    table, at = _read_name(data, at)
    identity = chr(data[at])
    count = int.from_bytes(data[at + 1 : at + 3])
    at += 3
    columns = []
    for _ in range(count):
        name, at = _read_name(data, at + 1)
        modifier = int.from_bytes(data[at + 4 : at + 8], signed=True)
        columns.append(RelationColumn(name, int.from_bytes(data[at : at + 4]), modifier))
        at += 8
    return Relation(int.from_bytes(data[1:5]), schema, table, identity, tuple(columns))


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise IndexError
    return data[at:end].decode(), end + 1
