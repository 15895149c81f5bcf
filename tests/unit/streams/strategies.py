"""Random Arrow types and values for the tests of keys, values, formats and parcels."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_LAST_MICROSECOND = 999_999

SIMPLE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=10),
    pa.binary(): st.binary(max_size=10),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.decimal128(20, 8): st.decimals(min_value=-(10**11), max_value=10**11, places=8),
    pa.decimal128(38, 0): st.integers(-(10**37), 10**37).map(Decimal),
}


def typed_values(depth: int = 2) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """A type and a strategy for its values, null among them. Values are those that `as_py` returns."""
    simple = st.sampled_from(list(SIMPLE.items()))
    found = simple if depth == 0 else st.one_of(simple, simple, _lists(depth), _structs(depth), _maps(depth))
    return found.map(lambda pair: (pair[0], st.none() | pair[1]))


def _lists(depth: int) -> st.SearchStrategy[Any]:
    return typed_values(depth - 1).map(lambda pair: (pa.list_(pair[0]), st.lists(pair[1], max_size=3)))


def _structs(depth: int) -> st.SearchStrategy[Any]:
    def make(fields: dict[str, Any]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        kind = pa.struct([(name, pair[0]) for name, pair in fields.items()])
        return kind, st.fixed_dictionaries({name: pair[1] for name, pair in fields.items()})

    return st.dictionaries(st.text(max_size=4), typed_values(depth - 1), min_size=1, max_size=3).map(make)


def _maps(depth: int) -> st.SearchStrategy[Any]:
    keys = st.sampled_from([pa.string(), pa.int64(), pa.date32()])

    def make(pair: tuple[pa.DataType, tuple[pa.DataType, st.SearchStrategy[Any]]]) -> Any:
        key, (value, values) = pair
        entries = st.dictionaries(SIMPLE[key], values, max_size=3)
        return pa.map_(key, value), entries.map(lambda found: list(found.items()))

    return st.tuples(keys, typed_values(depth - 1)).map(make)


@st.composite
def tables(draw: st.DrawFn, depth: int = 2, columns_max: int = 4) -> pa.Table:
    """A table with columns of random types, sometimes in several chunks."""
    fields = draw(st.dictionaries(st.text(max_size=5), typed_values(depth), min_size=1, max_size=columns_max))
    rows = draw(st.integers(0, 5))
    schema = pa.schema([(name, kind) for name, (kind, _) in fields.items()])
    chunks = [
        pa.RecordBatch.from_arrays(
            [pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind) for kind, values in fields.values()],
            schema=schema,
        )
        for _ in range(draw(st.integers(1, 2)))
    ]
    return pa.Table.from_batches(chunks, schema)


def plain(value: Any) -> Any:
    """A form in which equal values are equal: NaN equals itself, and zeros have their signs."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


EDGES = pa.table(
    {
        "number": pa.array([1, None, -(2**63)]),
        "amount": pa.array([float("nan"), float("-inf"), -0.0]),
        "text": pa.array(['quote " and \\ and \n', "", None]),
        "bytes": pa.array([b"\x00\xff", b"", None]),
        "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
        "moment": pa.array(
            [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, _LAST_MICROSECOND, tzinfo=UTC), None],
            pa.timestamp("us", "UTC"),
        ),
        "price": pa.array([Decimal("0.00000001"), Decimal("-1.5"), None], pa.decimal128(20, 8)),
        "list": pa.array([[1, None], [], None]),
        "struct": pa.array([{"a": 1, "b": [1.5]}, {"a": None, "b": None}, None]),
        "map": pa.array([[("a", 1), ("b\n", None)], [], None], pa.map_(pa.string(), pa.int64())),
    }
)
"""One column of each kind, with values that are easily lost."""
