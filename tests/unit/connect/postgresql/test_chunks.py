"""Which changes a snapshot has seen, and the order of keys."""

from random import Random

from ottla.connect.connectors.postgresql.chunks import (
    KEY_ORDERS,
    Chunk,
    ReadRows,
    Snapshot,
    add_chunk,
    read_chunks,
    write_chunks,
)


def test_what_a_snapshot_has_seen() -> None:
    snapshot = Snapshot.parse("10:20:12,15")
    assert [xid for xid in range(5, 25) if not snapshot.has_seen(xid)] == [12, 15, 20, 21, 22, 23, 24]
    assert all(Snapshot.parse("10:10:").has_seen(xid) for xid in range(3, 10))


def test_transaction_ids_of_32_bits_wrap() -> None:
    """The log has the low half of an id, a snapshot all of it."""
    epoch = 3 << 32
    snapshot = Snapshot.parse(f"{epoch - 5}:{epoch + 5}:{epoch - 3},{epoch + 2}")
    for distance in range(-20, 20):
        whole = epoch + distance
        expected = whole < epoch + 5 and whole not in (epoch - 3, epoch + 2)
        assert snapshot.has_seen(whole % (1 << 32)) == expected


def test_each_key_is_looked_up_in_its_chunk() -> None:
    chunks = [Chunk(["5", "b"], "10:10:"), Chunk(["7", "a"], "20:20:"), Chunk(None, "30:30:")]
    rows = ReadRows(read_chunks(write_chunks(chunks)), ["int4", "text"])
    seen_before = {("-1", "z"): 10, ("5", "b"): 10, ("5", "c"): 20, ("7", "a"): 20, ("7", "ä"): 30, ("10", ""): 30}
    for key, first in seen_before.items():
        assert [rows.has_seen(xid, key) for xid in (first - 1, first)] == [True, False]


def test_chunks_of_the_same_snapshot_become_one() -> None:
    chunks = add_chunk(add_chunk([], Chunk(["1"], "1:1:")), Chunk(["2"], "1:1:"))
    assert add_chunk(chunks, Chunk(None, "2:2:")) == [Chunk(["2"], "1:1:"), Chunk(None, "2:2:")]


def test_keys_are_in_order(seed: int) -> None:
    """As ORDER BY has them."""
    ordered = {
        "int8": ["-9223372036854775808", "-10", "-9", "0", "9", "10"],
        "numeric": ["-1.5", "0", "1", "1.05", "1.5", "10", "NaN"],
        "text": ["", "A", "B", "a", "é", "€", "😀"],
        "bytea": ["\\x", "\\x00", "\\x0001", "\\xff"],
        "timestamp": ["-infinity", "0044-03-15 10:00:00 BC", "0001-01-01 00:00:00", "2024-01-01 00:00:00",
                      "2024-01-01 00:00:00.5", "2024-01-02 00:00:00", "10000-01-01 00:00:00", "infinity"],
        "timestamptz": ["0044-03-15 10:00:00+00 BC", "2024-01-01 00:00:00+00", "2024-01-01 00:00:00.5+00"],
    }  # fmt: skip
    for kind, texts in ordered.items():
        shuffled = Random(seed).sample(texts, len(texts))
        assert sorted(shuffled, key=KEY_ORDERS[kind]) == texts
