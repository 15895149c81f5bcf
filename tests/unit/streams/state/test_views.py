"""Stores as people ask for them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.kernels.kernel import StoreSpec
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.keys import encode_key, session_key, window_key
from ottla.streams.state.store import MemoryReader
from ottla.streams.state.views import QueryError, StoreView, partition_of, read_time

PARTITIONS = 3
VALUE = pa.schema([("count", pa.int64())])


def make_view(key: pa.Schema, values: Mapping[bytes, tuple[bytes, bytes]], kind: str = "key-value") -> StoreView:
    """A view of values by the key in the store, each with the key that chooses its partition."""
    readers = [MemoryReader() for _ in range(PARTITIONS)]
    for stored, (own, value) in values.items():
        readers[partition_of(own, PARTITIONS)].values[stored] = value
    plan = StorePlan(StoreSpec("counts"), "changelog", key, VALUE, kind, window_ms=10)
    return StoreView(plan, PARTITIONS, readers.__getitem__)


def make_table(kind: pa.DataType, keys: Mapping[Any, int]) -> StoreView:
    columns = pa.schema([("id", kind)])
    encoded = {key: encode_key({"id": key}, columns) or b"" for key in keys}
    return make_view(columns, {encoded[key]: (encoded[key], b'{"count":%d,"_more":1}' % keys[key]) for key in keys})


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_a_key_is_found_in_its_partition() -> None:
    view = make_table(pa.string(), {f"k{number}": number for number in range(50)})
    for number in range(50):
        assert view.get([f"k{number}"]) == {"id": f"k{number}", "count": number}
    assert view.get(["missing"]) is None


@given(
    st.sets(st.integers(-50, 50)),
    st.none() | st.integers(-60, 60),
    st.none() | st.integers(-60, 60),
    st.integers(1, 20),
)
def test_ranges_of_numbers_go_over_zero_and_come_in_pages(
    keys: set[int], start: int | None, end: int | None, limit: int
) -> None:
    view = make_table(pa.int64(), dict.fromkeys(sorted(keys), 1))
    found: list[int] = []
    after = None
    while True:
        page = view.range(None if start is None else [start], None if end is None else [end], limit, after)
        assert len(page.rows) <= limit
        found += [row["id"] for row in page.rows]
        after = page.after
        if after is None:
            break
    wanted = [key for key in sorted(keys) if (start is None or key >= start) and (end is None or key <= end)]
    if start is None and end is None:
        assert sorted(found) == wanted  # all rows come in the order of bytes
    else:
        assert found == wanted


def test_both_ends_of_a_range_belong_to_it() -> None:
    view = make_table(pa.string(), {"a": 1, "b": 2, "ba": 3, "c": 4})
    assert [row["id"] for row in view.range(["a"], ["b"], 10).rows] == ["a", "b"]
    assert [row["id"] for row in view.range(["b"], None, 10).rows] == ["b", "ba", "c"]


def test_windows_are_found_by_time() -> None:
    values = {window_key(key, start): (key, b'{"count":%d}' % start) for key in (b"a", b"b") for start in (0, 10, 20)}
    view = make_view(pa.schema([("id", pa.string())]), values, "window")
    assert view.get(["a"], at(10)) == {"id": "a", "window_start": at(10), "window_end": at(20), "count": 10}
    assert view.get(["a"], 5) is None
    assert [row["count"] for row in view.windows(["b"], 10)] == [10, 20]
    assert [row["count"] for row in view.windows(["b"], 0, 10)] == [0, 10]
    found = view.all(10, 10, limit=10).rows
    assert [(row["id"], row["count"]) for row in found] == [("a", 10), ("b", 10)]
    with pytest.raises(QueryError, match="has windows: name the start of one of them"):
        view.get(["a"])


def test_sessions_are_found_by_what_they_overlap() -> None:
    spans = [(0, 5), (20, 40), (50, 50)]
    values = {session_key(b"a", end, start): (b"a", b'{"count":%d}' % start) for start, end in spans}
    view = make_view(pa.schema([("id", pa.string())]), values, "session")
    assert view.get(["a"], 20) == {"id": "a", "window_start": at(20), "window_end": at(40), "count": 20}
    assert [row["count"] for row in view.windows(["a"], 5, 30)] == [0, 20]
    assert [row["count"] for row in view.windows(["a"], 41)] == [50]
    assert [row["count"] for row in view.all(41, 49, limit=9).rows] == []


def test_a_question_that_cannot_be_answered_says_why() -> None:
    view = make_table(pa.float64(), {1.5: 1})
    for ask, reason in (
        (lambda: view.get([]), "the key of store 'counts' is id: 0 values given"),
        (lambda: view.get(["x"]), "key column 'id'"),
        (lambda: view.get([None]), "the key of store 'counts' is null"),
        (lambda: view.get([1.5], 7), "store 'counts' has no windows"),
        (lambda: view.range([1.0], [2.0], 5), "ranges need a key of one string, binary, int or long"),
        (lambda: read_time("soon"), "'soon' is not a time"),
    ):
        with pytest.raises(QueryError, match=reason):
            ask()


def test_times_may_be_given_in_several_forms() -> None:
    expected = 1_767_225_600_000
    for given_time in (expected, str(expected), "2026-01-01T00:00:00Z", "2026-01-01", datetime(2026, 1, 1)):
        assert read_time(given_time) == expected
