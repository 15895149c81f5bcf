"""Aggregates of grouped tables against a naive model, for every cut of the input."""

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams.errors import TopologyError
from ottla.streams.graph import BuiltInAggregate, PythonAggregate, Reduce
from ottla.streams.kernels.aggregates import AggregateKernel
from ottla.streams.kernels.kernel import Kernel
from ottla.streams.kernels.python_aggregates import PythonAggregateKernel
from ottla.streams.kernels.retractions import PartialRetraction, RetractionKernel
from ottla.streams.kernels.tables import ToTableKernel
from ottla.streams.rows import DELETED, OLD, TIMESTAMP
from tests.samples import sample_size
from tests.unit.streams.kernels.harness import Event, cut, make_rows, run_chain

TABLE = pa.schema([("id", pa.string()), ("city", pa.string()), ("amount", pa.int64()), ("price", pa.decimal128(9, 2))])
AGGREGATES = (
    BuiltInAggregate("count", None, "rows"),
    BuiltInAggregate("count", "amount", "amounts"),
    BuiltInAggregate("sum", "amount", "total"),
    BuiltInAggregate("sum", "price", "prices", pa.decimal128(19, 2)),
    BuiltInAggregate("avg", "amount", "mean", pa.float64()),
)
RESULT = pa.schema([("city", pa.string()), *((each.result, each.type) for each in AGGREGATES)])


def built_in_kernels() -> list[Kernel]:
    return [
        ToTableKernel("table", "table", TABLE, ["id"]),
        PartialRetraction("group", TABLE, ["city"], AGGREGATES),
        AggregateKernel("groups", RESULT, ["city"], AGGREGATES, retracting=True),
    ]


def add(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return {"ids": sorted([*value["ids"], f"{row['id']}={row['amount']}"])}


def subtract(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    ids = list(value["ids"])
    ids.remove(f"{row['id']}={row['amount']}")
    return {"ids": ids}


def python_kernels(aggregation: PythonAggregate | Reduce, results: list[pa.Field]) -> list[Kernel]:
    grouped = pa.schema([TABLE.field(name) for name in ("city", "id", "amount")])
    return [
        ToTableKernel("table", "table", TABLE, ["id"]),
        RetractionKernel("group", grouped, ["city"]),
        PythonAggregateKernel(
            "agg",
            "groups",
            grouped,
            pa.schema([grouped.field("city"), *results]),
            ["city"],
            aggregation,
            retracting=True,
        ),
    ]


IDS = PythonAggregate(lambda: {"ids": []}, add, subtract)


def random_events(random: Random) -> list[Event]:
    """Rows that move between groups, to none and back, and are deleted."""
    events: list[Event] = []
    for _ in range(random.randint(0, 50)):
        event: Event = {"id": random.choice("pqrs"), "at": random.randint(0, 99)}
        if random.random() < 0.2:
            event["deleted"] = True
        else:
            event |= {"city": random.choice([None, "a", "b", "c"]), "amount": random.choice([None, 1, 2, 30])}
            event["price"] = random.choice([None, Decimal("0.10"), Decimal("-7.00")])
        events.append(event)
    return events


def groups_of(table: dict[str, Event], cities: set[str]) -> dict[str, list[Event]]:
    return {city: [row for row in table.values() if row["city"] == city] for city in cities}


def compute(rows: list[Event]) -> Event:
    amounts = [row["amount"] for row in rows if row["amount"] is not None]
    prices = [row["price"] for row in rows if row["price"] is not None]
    return {
        "rows": len(rows),
        "amounts": len(amounts),
        "total": sum(amounts) if amounts else None,
        "prices": sum(prices) if prices else None,
        "mean": sum(amounts) / len(amounts) if amounts else None,
    }


def check_cuts(kernels: list[Kernel], random: Random, expect: Any, names: list[str]) -> None:
    """After each batch, the emitted table has what the model computes from the rows that the table has then."""
    events = random_events(random)
    ranges = cut(random, len(events))
    batches, _ = run_chain(
        kernels, [make_rows(TABLE, events[start:end], first_order=start, is_table=True) for start, end in ranges]
    )
    table: dict[str, Event] = {}
    cities: set[str] = set()
    emitted: dict[str, Event] = {}
    for (start, end), changes in zip(ranges, batches, strict=True):
        for event in events[start:end]:
            table.pop(event["id"], None)
            if "deleted" not in event:
                table[event["id"]] = event
                cities |= {event["city"]} - {None}
        for change in changes:
            assert change[OLD] == emitted.get(change["city"])
            assert change[DELETED] is False
            emitted[change["city"]] = {name: change[name] for name in names}
        assert len({change["city"] for change in changes}) == len(changes)
        assert emitted == {city: expect(rows) for city, rows in groups_of(table, cities).items()}


@pytest.mark.parametrize("number", range(sample_size(6, 400)))
def test_built_in_aggregates_follow_the_table(seed: int, number: int) -> None:
    """A group that has become empty stays, with a count of 0 and no sum."""
    check_cuts(built_in_kernels(), Random(f"{seed}-{number}"), compute, [each.result for each in AGGREGATES])


@pytest.mark.parametrize("number", range(sample_size(6, 400)))
def test_functions_follow_the_table(seed: int, number: int) -> None:
    kernels = python_kernels(IDS, [pa.field("ids", pa.list_(pa.string()))])
    check_cuts(
        kernels,
        Random(f"{seed}-{number}"),
        lambda rows: {"ids": sorted(f"{row['id']}={row['amount']}" for row in rows)},
        ["ids"],
    )


def test_a_change_within_a_group_is_one_step() -> None:
    """The old row is taken away before the new one is added, and the group is emitted once."""
    calls = []

    def added(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        calls.append(("add", row["amount"]))
        return add(value, row)

    def subtracted(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        calls.append(("subtract", row["amount"]))
        return subtract(value, row)

    kernels = python_kernels(
        PythonAggregate(lambda: {"ids": []}, added, subtracted), [pa.field("ids", pa.list_(pa.string()))]
    )
    events = [{"id": "p", "city": city, "amount": at, "at": at} for at, city in enumerate(["a", "a", "b"])]
    batches, _ = run_chain(kernels, [make_rows(TABLE, [event], is_table=True) for event in events])
    assert [[(row["city"], row["ids"]) for row in batch] for batch in batches] == [
        [("a", ["p=0"])],
        [("a", ["p=1"])],
        [("a", []), ("b", ["p=2"])],
    ]
    assert calls == [("add", 0), ("subtract", 0), ("add", 1), ("subtract", 1), ("add", 2)]


def test_a_reduce_of_a_table_takes_away_what_has_changed() -> None:
    def combine(sign: int) -> Any:
        return lambda left, right: {**left, "amount": left["amount"] + sign * right["amount"]}

    kernels = python_kernels(
        Reduce(combine(1), combine(-1)), [pa.field("id", pa.string()), pa.field("amount", pa.int64())]
    )
    events: list[Event] = [
        {"id": "p", "city": "a", "amount": 5, "at": 9},
        {"id": "q", "city": "a", "amount": 7, "at": 3},
        {"id": "p", "at": 4, "deleted": True},
    ]
    batches, _ = run_chain(kernels, [make_rows(TABLE, [event], is_table=True) for event in events])
    assert [[(row["amount"], row[TIMESTAMP]) for row in batch] for batch in batches] == [[(5, 9)], [(12, 9)], [(7, 9)]]


def test_what_cannot_be_taken_away_is_refused_when_it_is_built() -> None:
    with pytest.raises(TopologyError, match="max of column amount: a table's rows change"):
        PartialRetraction("group", TABLE, ["city"], (BuiltInAggregate("max", "amount", "most"),))
    with pytest.raises(TopologyError, match="agg: a table's rows change, so its aggregate needs a subtract function"):
        python_kernels(PythonAggregate(lambda: {"ids": []}, add), [pa.field("ids", pa.list_(pa.string()))])


def test_nothing_comes_of_nothing() -> None:
    for kernels in (built_in_kernels(), python_kernels(IDS, [pa.field("ids", pa.list_(pa.string()))])):
        assert run_chain(kernels, [make_rows(TABLE, [], is_table=True)])[0] == [[]]


def test_a_change_within_a_group_crosses_the_exchange_once() -> None:
    """A change of the group is two rows, the one that takes away first."""
    table, retraction, _ = python_kernels(IDS, [pa.field("ids", pa.list_(pa.string()))])
    events = [{"id": "p", "city": city, "amount": at, "at": at} for at, city in enumerate(["a", "a", "b", None])]
    [rows], _ = run_chain([table, retraction], [make_rows(TABLE, events, is_table=True)])
    assert [(row["city"], row[DELETED], row["amount"], row[OLD] and row[OLD]["amount"]) for row in rows] == [
        ("a", False, 0, None),
        ("a", False, 1, 0),
        ("a", True, 1, 1),
        ("b", False, 2, None),
        ("b", True, 2, 2),
    ]
