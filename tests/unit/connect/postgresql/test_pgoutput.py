"""Messages of pgoutput, written by hand as PostgreSQL's manual describes them."""

import struct

import pytest

from ottla.connect.connectors.postgresql.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Relation,
    RelationColumn,
    Truncate,
    decode,
)
from ottla.connect.errors import ConnectError

OID = 16_385


def make_row(*values: bytes | None) -> bytes:
    parts = [struct.pack("!H", len(values))]
    for each in values:
        if each is None:
            parts.append(b"n")
        elif each is UNCHANGED:
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack("!I", len(each)) + each)
    return b"".join(parts)


def decode_one(data: bytes) -> object:
    (found,) = decode([(77, data)])
    return found


def test_the_frame_of_a_transaction() -> None:
    """Times count from 2000."""
    begin = b"B" + struct.pack("!QqI", 0x16B3748, 1, 4_000_000_000)
    assert decode_one(begin) == Begin(0x16B3748, 946_684_800_000_001, 4_000_000_000)
    commit = b"C" + struct.pack("!BQQq", 0, 0x16B3748, 0x16B3778, 1)
    assert decode_one(commit) == Commit(0x16B3778)


def test_a_table() -> None:
    columns = b"\x01id\0" + struct.pack("!Ii", 23, -1) + b"\x00name\0" + struct.pack("!Ii", 1043, 14)
    data = b"R" + struct.pack("!I", OID) + b"public\0orders\0" + b"d" + struct.pack("!H", 2) + columns
    expected = (RelationColumn("id", 23, -1), RelationColumn("name", 1043, 14))
    assert decode_one(data) == Relation(OID, "public", "orders", "d", expected)


def test_changes() -> None:
    """Nulls, empty and large values, and values that were not logged."""
    oid, large = struct.pack("!I", OID), b"x" * 70_000
    assert decode_one(b"I" + oid + b"N" + make_row(b"1", None, b"", large)) == (
        "c", OID, None, [b"1", None, b"", large], 77,
    )  # fmt: skip
    assert decode_one(b"U" + oid + b"N" + make_row(b"1", UNCHANGED)) == ("u", OID, None, [b"1", UNCHANGED], 77)
    for kind in (b"K", b"O"):
        moved = b"U" + oid + kind + make_row(b"1", None) + b"N" + make_row(b"2", b"b")
        assert decode_one(moved) == ("u", OID, [b"1", None], [b"2", b"b"], 77)
        assert decode_one(b"D" + oid + kind + make_row(b"1", None)) == ("d", OID, [b"1", None], None, 77)
    assert decode_one(b"T" + struct.pack("!IBII", 2, 0, OID, OID + 1)) == Truncate((OID, OID + 1), 77)


def test_messages_that_mean_nothing_here() -> None:
    assert list(decode([(1, b"Y" + bytes(9)), (2, b"O" + bytes(9)), (3, b"M" + bytes(20))])) == []


@pytest.mark.parametrize(
    "data", [b"?", b"I" + struct.pack("!I", OID) + b"N" + make_row(b"12345")[:-1], b"R\0\0\0\1public", b"U\0\0\0\1"]
)
def test_messages_that_are_wrong(data: bytes) -> None:
    with pytest.raises(ConnectError, match="pgoutput sent"):
        list(decode([(1, data)]))
