"""Parcels bring back rows, order and source times, are never too large for a record, and outlive a changed schema."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.parcels import PARCEL_BYTES_MAX, pack, unpack
from ottla.streams.rows import HIDDEN, stream_schema
from tests.unit.streams.strategies import plain, tables

source_times = st.dictionaries(st.integers(0, 100), st.integers(-(2**62), 2**62), max_size=5)


@given(tables(), source_times, st.integers(1, 5000))
def test_rows_and_times_survive(rows: pa.Table, times: dict[int, int], bytes_max: int) -> None:
    found = unpack(pack(rows, times, bytes_max=bytes_max), rows.schema)
    assert plain(found.rows.to_pylist()) == plain(rows.to_pylist())
    assert found.rows.schema == rows.schema
    assert found.source_times == times


def test_many_rows_become_parcels_below_the_limit() -> None:
    """Also if a few rows have most of the bytes, so that the average says little."""
    texts = ["x" * (100_000 if row < 30 else 10) for row in range(30_000)]
    rows = pa.table({"text": texts, "number": range(30_000)})
    parcels = pack(rows, {1: 5})
    assert len(parcels) > 3
    assert max(map(len, parcels)) <= PARCEL_BYTES_MAX
    assert unpack(parcels, rows.schema).rows.equals(rows)


def test_a_row_that_is_too_large_is_a_parcel_of_its_own() -> None:
    rows = pa.table({"text": ["a", "x" * 2_000_000, "b"]})
    parcels = pack(rows, {})
    assert sorted(len(each) > PARCEL_BYTES_MAX for each in parcels) == [False, False, True]
    assert unpack(parcels, rows.schema).rows.equals(rows)


def test_times_without_rows_are_a_parcel() -> None:
    schema = stream_schema(pa.schema([("id", pa.int64())]))
    (parcel,) = pack(schema.empty_table(), {3: 1000})
    assert unpack([parcel], schema).source_times == {3: 1000}
    assert unpack([], schema).rows.schema == schema
    assert len(parcel) < 4096


def test_the_newest_time_of_a_source_wins() -> None:
    rows = HIDDEN.empty_table()
    assert unpack([*pack(rows, {1: 7, 2: 1}), *pack(rows, {1: 5}), *pack(rows, {2: 9})], HIDDEN).source_times == {
        1: 7,
        2: 9,
    }


def test_parcels_of_an_older_schema_are_read() -> None:
    old = pa.table({"gone": ["x"], "id": pa.array([1], pa.int32())})
    new = pa.schema([("id", pa.int64()), ("added", pa.string())])
    assert unpack(pack(old, {}), new).rows.to_pylist() == [{"id": 1, "added": None}]
    with pytest.raises(ValueError, match="a parcel has string in column 'gone', not int64"):
        unpack(pack(old, {}), pa.schema([("gone", pa.int64())]))


@pytest.mark.parametrize("damaged", [b"", b"{}", b"\xff" * 100, pack(pa.table({"a": [1]}), {})[0][:-200]])
def test_a_damaged_parcel_is_refused_in_one_line(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="not a parcel of a repartition topic") as caught:
        unpack([damaged], pa.schema([("a", pa.int64())]))
    assert "\n" not in str(caught.value)
