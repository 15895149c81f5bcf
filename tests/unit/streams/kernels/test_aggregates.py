"""Built-in aggregates by key against a naive model, for every cut of the input."""

from decimal import Decimal
from json import loads
from math import isnan, nan
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from ottla.streams.errors import StreamsError, TopologyError
from ottla.streams.graph import BuiltInAggregate
from ottla.streams.kernels.aggregates import AggregateKernel
from ottla.streams.kernels.kernel import Kernel
from ottla.streams.kernels.partial import PartialAggregate
from ottla.streams.rows import DELETED, OLD, TIMESTAMP
from tests.samples import sample_size
from tests.unit.streams.kernels.harness import Event, State, cut, exchange, make_rows, run_chain

MONEY = pa.decimal128(10, 2)
COLUMNS = pa.schema([("key", pa.string()), ("number", pa.int32()), ("price", MONEY), ("name", pa.string())])
ARGUMENTS = {"number": pa.int32(), "price": MONEY, "name": pa.string()}


def built_in(function: str, column: str | None = None, kind: pa.DataType | None = None) -> BuiltInAggregate:
    return BuiltInAggregate(function, column, f"{function}_{column}", kind or pa.int64())


AGGREGATES = (
    built_in("count"),
    built_in("count", "name"),
    built_in("sum", "number"),
    built_in("sum", "price", pa.decimal128(20, 2)),
    built_in("avg", "number", pa.float64()),
    built_in("avg", "price", pa.decimal128(14, 6)),
    *(
        built_in(function, name, kind)
        for function in ("min", "max", "first", "last")
        for name, kind in ARGUMENTS.items()
    ),
    *(
        built_in(function, name, pa.list_(kind))
        for function in ("collect_list", "collect_set")
        for name, kind in ARGUMENTS.items()
    ),
)


def make_kernels(
    aggregates: tuple[BuiltInAggregate, ...], columns: pa.Schema = COLUMNS, key: tuple[str, ...] = ("key",)
) -> list[Kernel]:
    result = pa.schema([*(columns.field(name) for name in key), *((each.result, each.type) for each in aggregates)])
    return [PartialAggregate("agg", columns, key, aggregates), AggregateKernel("agg", result, key, aggregates)]


def compute(aggregate: BuiltInAggregate, rows: list[Event]) -> Any:
    """The aggregate as Spark SQL defines it."""
    if aggregate.column is None:
        return len(rows)
    values = [row[aggregate.column] for row in rows]
    if aggregate.function in ("first", "last"):
        return values[0 if aggregate.function == "first" else -1]
    values = [value for value in values if value is not None]
    match aggregate.function:
        case "count":
            return len(values)
        case "collect_list":
            return values
        case "collect_set":
            return list(dict.fromkeys(values))
    if not values:
        return None
    match aggregate.function:
        case "avg" if isinstance(values[0], Decimal):
            return (sum(values) / len(values)).quantize(Decimal("0.000001"), "ROUND_HALF_UP")
        case "avg":
            return sum(values) / len(values)
        case "sum":
            return sum(values)
    return min(values) if aggregate.function == "min" else max(values)


def random_events(random: Random) -> list[Event]:
    return [
        {
            "key": random.choice([None, "a", "b", "c", "\x00"]),
            "number": random.choice([None, random.randint(-9, 9)]),
            "price": random.choice([None, Decimal(random.randint(-999, 999)).scaleb(-2)]),
            "name": random.choice([None, "x", "yy", "\x00"]),
            "at": random.randint(0, 99),
            "source": random.randint(0, 1),
        }
        for _ in range(random.randint(0, 60))
    ]


def check_batches(kernels: list[Kernel], events: list[Event], random: Random | None) -> None:
    """Each batch changes each of its keys once, to what the model says, and knows what the key had before."""
    ranges = cut(random, len(events))
    batches, contexts = run_chain(
        kernels, [make_rows(COLUMNS, events[start:end], first_order=start) for start, end in ranges]
    )
    rows: dict[str, list[Event]] = {}
    table: dict[str, Event] = {}
    for (start, end), changes in zip(ranges, batches, strict=True):
        touched = [event["key"] for event in events[start:end] if event["key"] is not None]
        for event in events[start:end]:
            if event["key"] is not None:
                rows.setdefault(event["key"], []).append(event)
        assert sorted(change["key"] for change in changes) == sorted(set(touched))
        for change in changes:
            key = change["key"]
            expected = {each.result: compute(each, rows[key]) for each in AGGREGATES}
            assert {name: change[name] for name in expected} == expected
            assert change[TIMESTAMP] == max(event["at"] for event in rows[key])
            assert change[OLD] == table.get(key)
            assert change[DELETED] is False
            table[key] = expected
    dropped = sum(context.dropped["agg", "null key"] for context in contexts)
    assert dropped == sum(event["key"] is None for event in events)


@pytest.mark.parametrize("number", range(sample_size(6, 300)))
def test_every_cut_gives_what_the_model_gives(seed: int, number: int) -> None:
    random = Random(f"{seed}-{number}")
    events = random_events(random)
    check_batches(make_kernels(AGGREGATES), events, random)


def test_one_row_per_batch_gives_an_update_for_each_row(seed: int) -> None:
    check_batches(make_kernels(AGGREGATES), random_events(Random(seed)), None)


def test_partials_of_several_tasks_are_merged(seed: int) -> None:
    """Rows that two tasks have aggregated before an exchange give the same as rows that one task has aggregated."""
    random = Random(seed)
    aggregates = tuple(each for each in AGGREGATES if each.function in ("count", "sum", "avg", "min", "max"))
    events = random_events(random) + random_events(random)
    partial, merging = make_kernels(aggregates)
    expected, _ = run_chain([partial, merging], [make_rows(COLUMNS, events)])
    parcels: list[pa.Table] = []
    for source in (0, 1):
        mine = [event for event in events if event["source"] == source]
        for start, end in cut(random, len(mine)):
            parcels += partial.process([make_rows(COLUMNS, mine[start:end])], State().context([]))
    random.shuffle(parcels)
    found, _ = run_chain([merging], [exchange(parcels)])
    tables = [
        {row["key"]: {each.result: row[each.result] for each in aggregates} for row in rows}
        for rows in (*expected, *found)
    ]
    assert tables[0] == tables[1]


def test_partial_rows_have_the_hidden_columns_of_the_last_row() -> None:
    """Also its stream time, which belongs to its source partition alone, but the highest time of all rows."""
    [partial, _] = make_kernels((built_in("count"),))
    events: list[Event] = [
        {"key": "a", "at": 9, "stream_time": 9, "source": 0, "headers": [{"key": "h", "value": b"1"}]},
        {"key": "a", "at": 7, "stream_time": 8, "source": 1, "headers": [{"key": "h", "value": b"2"}]},
    ]
    [[row]], _ = run_chain([partial], [make_rows(COLUMNS, events)])
    assert (row["_source"], row["_stream_time"], row["_offset"], row[TIMESTAMP]) == (1, 8, 1, 9)
    assert row["_headers"] == [{"key": "h", "value": b"2"}]


def test_nothing_comes_of_nothing() -> None:
    kernels = make_kernels(AGGREGATES)
    batches, contexts = run_chain(kernels, [make_rows(COLUMNS, [])])
    assert batches == [[]]
    assert not contexts[0].store("agg").changes


def test_keys_of_several_columns_and_of_structs() -> None:
    """Part of a key may be null, and a key may be of a type that Arrow cannot group by."""
    columns = pa.schema([("place", pa.struct([("x", pa.int32())])), ("name", pa.string())])
    kernels = make_kernels((built_in("count"),), columns, ("place", "name"))
    keys = [({"x": 1}, None), (None, None), ({"x": 1}, None), (None, "n"), ({"x": 2}, "n")]
    events = [{"place": place, "name": name, "at": 0} for place, name in keys]
    [rows], _ = run_chain(kernels, [make_rows(columns, events)])
    assert [(row["place"], row["name"], row["count_None"]) for row in rows] == [
        ({"x": 1}, None, 2),
        (None, "n", 1),
        ({"x": 2}, "n", 1),
    ]


def test_nan_is_the_largest_number() -> None:
    columns = pa.schema([("key", pa.string()), ("number", pa.float64())])
    aggregates = (built_in("min", "number", pa.float64()), built_in("max", "number", pa.float64()))
    values = [("a", nan), ("a", 1.0), ("b", nan), ("b", None), ("c", 2.0), ("c", 3.0)]
    events = [{"key": key, "number": number, "at": 0} for key, number in values]
    for batches in ([events], [[event] for event in events]):
        rows, _ = run_chain(make_kernels(aggregates, columns), [make_rows(columns, batch) for batch in batches])
        found = {row["key"]: row for batch in rows for row in batch}
        assert found["a"]["min_number"] == 1.0
        assert isnan(found["a"]["max_number"])
        assert isnan(found["b"]["min_number"])
        assert isnan(found["b"]["max_number"])
        assert (found["c"]["min_number"], found["c"]["max_number"]) == (2.0, 3.0)


@pytest.mark.parametrize("is_one_batch", [True, False])
@pytest.mark.parametrize(
    ("kind", "number", "largest"),
    [
        (pa.int64(), int, 2**63 - 1),
        (pa.decimal128(38, 0), Decimal, 10**38 - 1),
    ],
)
def test_a_sum_that_does_not_fit_is_refused(
    is_one_batch: bool, kind: pa.DataType, number: type[int] | type[Decimal], largest: int
) -> None:
    """The largest sum is exact, also if a part of it is larger, and one more is an error of one line."""
    columns = pa.schema([("key", pa.string()), ("number", kind)])
    kernels = make_kernels((built_in("sum", "number", kind),), columns)

    def total(values: list[int]) -> Any:
        events = [{"key": "a", "number": number(value), "at": 0} for value in values]
        batches = [events] if is_one_batch else [[event] for event in events]
        rows, _ = run_chain(kernels, [make_rows(columns, batch) for batch in batches])
        return rows[-1][0]["sum_number"]

    assert total([largest - 1, 1]) == largest
    if is_one_batch:
        assert total([largest, 1, -1]) == largest
    with pytest.raises(StreamsError, match="sum of column number: the result does not fit"):
        total([largest, 1])


def test_extremes_of_nested_values_are_refused_when_they_are_built() -> None:
    with pytest.raises(TopologyError, match="max of column place: values of type struct<x: int32> have no order"):
        make_kernels((built_in("max", "place", pa.struct([("x", pa.int32())])),))


def test_the_state_is_json_that_anybody_can_read() -> None:
    """A value has the results, what else the aggregates need, and the time of the row."""
    kernels = make_kernels((built_in("count"), built_in("avg", "number", pa.float64())))
    events = [{"key": "a", "number": number, "at": number} for number in (4, 3)]
    state = State()
    run_chain(kernels, [make_rows(COLUMNS, events)], state)
    assert {key: loads(value) for key, value in state.readers["agg"].values.items()} == {
        b"a": {"count_None": 2, "avg_number": 3.5, "_avg_number_sum": 7.0, "_avg_number_count": 2, "_timestamp": 4}
    }


def test_kernels_can_be_sent_to_tasks() -> None:
    kernels = cloudpickle.loads(cloudpickle.dumps(make_kernels(AGGREGATES)))  # type: ignore[no-untyped-call]
    check_batches(kernels, [{"key": "a", "number": 1, "price": None, "name": "x", "at": 0}], None)
