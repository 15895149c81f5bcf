"""Keys: Kafka's bytes for single columns, JSON arrays for others, and an order that windows can be scanned in."""

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.state.keys import (
    after_prefix,
    decode_keys,
    decode_time,
    encode_key,
    encode_keys,
    encode_time,
    prefix_of,
    session_key,
    split_session_key,
    split_window_key,
    window_key,
)
from tests.unit.streams.strategies import EDGES, SIMPLE, plain, tables

times = st.integers(-(2**62), 2**62)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.string(), "Zoë", "Zoë".encode()),
        (pa.string(), "", b""),
        (pa.binary(), b"\x00\x01", b"\x00\x01"),
        (pa.int32(), -2, struct.pack(">i", -2)),
        (pa.int64(), 2**40, struct.pack(">q", 2**40)),
        (pa.float64(), -1.5, struct.pack(">d", -1.5)),
        (pa.float64(), float("nan"), bytes.fromhex("7ff8000000000000")),
        (pa.bool_(), True, b"\x01"),
        (pa.bool_(), False, b"\x00"),
    ],
)
def test_a_single_column_has_the_bytes_of_kafkas_serializer(kind: pa.DataType, value: Any, expected: bytes) -> None:
    rows = pa.table({"k": pa.array([value, None, value], kind)})
    assert encode_keys(rows, ["k"]) == [expected, None, expected]
    assert encode_key({"k": value}, rows.schema) == expected


def test_the_nan_of_a_negative_sign_is_the_same_key() -> None:
    other = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert encode_keys(pa.table({"k": [other]}), ["k"]) == [bytes.fromhex("7ff8000000000000")]
    assert encode_key({"k": other}, pa.schema([("k", pa.float64())])) == bytes.fromhex("7ff8000000000000")


def test_other_keys_are_json_arrays() -> None:
    rows = pa.table({"a": ["x", None, None], "b": [1, 2, None], "c": pa.array([1, 2, 3], pa.int16())})
    assert encode_keys(rows, ["a", "b"]) == [b'["x",1]', b"[null,2]", None]
    assert encode_keys(rows, ["b", "a"]) == [b'[1,"x"]', b"[2,null]", None]
    assert encode_keys(rows, ["c"]) == [b"[1]", b"[2]", b"[3]"]


@given(tables())
def test_keys_of_any_columns_survive_a_round_trip(rows: pa.Table) -> None:
    keys = encode_keys(rows, rows.schema.names)
    assert plain(decode_keys(keys, rows.schema).to_pylist()) == plain(rows.to_pylist())
    assert decode_keys(keys, rows.schema).schema == rows.schema


@given(tables(depth=1))
def test_a_single_key_has_the_same_bytes_as_in_a_batch(rows: pa.Table) -> None:
    for maps in (None, "strict"):
        singly = [encode_key(row, rows.schema) for row in rows.to_pylist(maps_as_pydicts=maps)]
        assert singly == encode_keys(rows, rows.schema.names)


@given(st.data())
def test_every_simple_type_survives_alone(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(list(SIMPLE.items())))
    rows = pa.table({"k": pa.array(data.draw(st.lists(st.none() | values, max_size=5)), kind)})
    assert plain(decode_keys(encode_keys(rows, ["k"]), rows.schema).to_pylist()) == plain(rows.to_pylist())


def test_edges_survive_a_round_trip() -> None:
    keys = encode_keys(EDGES, EDGES.schema.names)
    assert plain(decode_keys(keys, EDGES.schema).to_pylist()) == plain(EDGES.to_pylist())


@pytest.mark.parametrize(
    ("kind", "key"),
    [(pa.int64(), b"123"), (pa.string(), b"\xff"), (pa.int16(), b"[1,2]"), (pa.int16(), b"x"), (pa.int16(), b'["x"]')],
)
def test_a_key_that_does_not_fit_is_refused_in_one_line(kind: pa.DataType, key: bytes) -> None:
    with pytest.raises(ValueError, match=r"^key .*is not") as caught:
        decode_keys([key], pa.schema([("k", kind)]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "1"),
        (pa.int32(), 2**31),
        (pa.string(), 1),
        (pa.binary(), "x"),
        (pa.float64(), "x"),
        (pa.bool_(), 1),
    ],
)
def test_a_single_value_that_does_not_fit_is_refused(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^key column 'k': .* is not "):
        encode_key({"k": value}, pa.schema([("k", kind)]))


@given(st.lists(times, min_size=2))
def test_times_keep_their_order(found: list[int]) -> None:
    assert sorted(found, key=encode_time) == sorted(found)
    assert [decode_time(encode_time(each)) for each in found] == found


keys_with_zeros = st.lists(st.sampled_from([b"\x00", b"\x01", b"\xff", b"a"]), max_size=6).map(b"".join)


@given(keys_with_zeros, times, times)
def test_keys_of_windows_and_sessions_can_be_split(key: bytes, start: int, end: int) -> None:
    assert split_window_key(window_key(key, start)) == (key, start)
    assert split_session_key(session_key(key, end, start)) == (key, end, start)


@given(st.lists(st.tuples(keys_with_zeros, times, times), min_size=2))
def test_windows_are_ordered_by_key_and_time(found: list[tuple[bytes, int, int]]) -> None:
    windows = sorted(found, key=lambda each: window_key(each[0], each[1]))
    assert [each[:2] for each in windows] == sorted(each[:2] for each in found)
    assert sorted(found, key=lambda each: session_key(*each)) == sorted(found)


@given(keys_with_zeros, keys_with_zeros, times)
def test_a_prefix_finds_the_windows_of_its_key_only(key: bytes, other: bytes, start: int) -> None:
    prefix, encoded = prefix_of(key), window_key(other, start)
    assert encoded.startswith(prefix) == (key == other)
    end = after_prefix(prefix)
    assert end is not None
    assert (prefix <= encoded < end) == (key == other)


def test_nothing_comes_after_a_prefix_of_the_highest_bytes() -> None:
    assert after_prefix(b"\xff\xff") is None
    assert after_prefix(b"a\xff") == b"b"
