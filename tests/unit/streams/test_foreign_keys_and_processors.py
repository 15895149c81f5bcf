"""Foreign-key joins and processors in whole apps: several partitions, random cuts, repeated batches."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams import graph
from ottla.streams.formats import RecordFormat
from ottla.streams.graph import Node
from ottla.streams.processors import Context, Processor, Timer, ValueState
from ottla.streams.testing import TestDriver
from tests.samples import sample_size
from tests.unit.streams.planning.topologies import LONG, count, join, rekey, sink, source, to_table

Row = dict[str, Any]


def customers() -> graph.Source:
    """A table with numbers as keys."""
    columns = pa.schema([("id", pa.int64()), ("name", pa.int64())])
    form = RecordFormat("json", type=pa.struct([("name", pa.int64())]))
    return graph.Source(
        "source customers",
        (),
        columns,
        ("id",),
        True,
        topic="customers",
        key_format=LONG,
        value_format=form,
        name="customers",
    )


def join_customers(orders: Node, how: str) -> Node:
    make = partial(graph.ForeignKeyJoin, foreign_key=("customer",))
    return join(make, orders, customers(), "order-customer", how)


LEFT_SIDES: dict[str, Callable[[], Node]] = {
    "a source table": lambda: source("orders", "customer", "amount", is_table=True),
    "a stream as a table": lambda: to_table(source("orders", "customer", "amount"), "orders-table"),
    "a table that must be moved": lambda: source("orders", "customer", "amount", is_table=True, json_key=True),
}


def change(random: Random, at: int) -> tuple[str, Row]:
    """A change of one of the tables; a third deletes."""
    if random.random() < 0.5:
        row: Row = {"key": random.choice("abcdef"), "_timestamp": at}
        values = {"customer": random.choice([None, 1, 2, 3, 4]), "amount": random.randint(0, 2)}
        return "orders", row if random.random() < 0.3 else row | values
    row = {"id": random.randint(1, 4), "_timestamp": at}
    return "customers", row if random.random() < 0.3 else row | {"name": random.randint(10, 12)}


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("left", LEFT_SIDES)
def test_a_foreign_key_join_is_that_of_both_tables(left: str, how: str, seed: int) -> None:
    # For every cut and order of tasks: the topic, the store and the join of both tables are the same.
    for number in range(sample_size(1, 20)):
        random = Random(seed + number)
        tables: dict[str, dict[Any, Row]] = {"orders": {}, "customers": {}}
        result = join_customers(LEFT_SIDES[left](), how)
        with TestDriver("app", [sink(result, "out")], split=seed + number) as test:
            for at in range(40):
                topic, row = change(random, at)
                test.feed(topic, [row])
                key = row["key"] if topic == "orders" else row["id"]
                tables[topic].pop(key, None)
                if len(row) > 2:
                    tables[topic][key] = row
            expected = {}
            for key, order in tables["orders"].items():
                customer = tables["customers"].get(order["customer"])
                if customer is not None or how == "left":
                    name = None if customer is None else customer["name"]
                    expected[key] = {"customer": order["customer"], "amount": order["amount"], "right_name": name}
            assert test.table("out") == expected
            assert {row.pop("key"): row for row in test.query("order-customer").all()} == expected


def test_a_foreign_key_join_can_be_grouped() -> None:
    # Groups need the old values of the join.
    joined = join_customers(source("orders", "customer", "amount", is_table=True), "left")
    counts = count(rekey(joined, "right_name"), "by-name")
    with TestDriver("app", [sink(counts, "out")], split=4) as test:
        test.feed("orders", [{"key": key, "customer": 1, "amount": 1} for key in "abc"])
        test.feed("customers", [{"id": 1, "name": 10}, {"id": 2, "name": 20}])
        test.feed("orders", [{"key": "a", "customer": 2, "amount": 1}, {"key": "b"}])
        counted = {row["right_name"]: row["count"] for row in test.query("by-name").all() if row["count"]}
    assert counted == {10: 1, 20: 1}


class Silence(Processor):
    """Counts rows, and says so when a key was silent for a second."""

    rows = ValueState("long")

    def process(self, row: Row, context: Context) -> Iterator[Any]:
        self.rows.value = (self.rows.value or 0) + 1
        context.timer("silence", context.timestamp + timedelta(seconds=1))
        if row["value"] == 0:
            yield "zeros", {"total": self.rows.value}

    def on_timer(self, timer: Timer, context: Context) -> Iterator[Any]:
        yield {"total": self.rows.value}
        self.rows.clear()


def silence(node: Node, close_idle_ms: int | None = None) -> tuple[graph.Process, graph.Output]:
    columns = pa.schema([node.columns.field(name) for name in node.key] + [pa.field("total", pa.int64())])
    process = graph.Process(
        "silence",
        (node,),
        columns,
        node.key,
        name="silence",
        processor=Silence,
        outputs={"zeros": columns},
        close_idle_ms=close_idle_ms,
    )
    return process, graph.Output("zeros", (process,), columns, node.key, name="zeros")


@pytest.mark.parametrize("split", [None, 1, 2, 3])
def test_a_processor_behind_an_exchange(split: int | None) -> None:
    # Rows come to the partition of their key, timers fire when all source partitions have gone on, and each output has
    # its topic. The state of a key can be queried.
    process, zeros = silence(rekey(source("in"), "value"))
    with TestDriver("app", [sink(process, "out"), sink(zeros, "zeros")], split=split) as test:
        first = [{"key": f"k{number}", "value": number % 3, "_timestamp": 1000} for number in range(30)]
        test.feed("in", first)
        assert sorted(record["value"]["total"] for record in test.read("zeros")) == list(range(1, 11))
        assert test.query("silence").get(1) == {"value": 1, "rows": 10}
        assert test.read("out") == []
        test.feed("in", [{"key": f"k{number}", "value": 5, "_timestamp": 2000} for number in range(30)])
        found = [(record["timestamp"], record["value"]["total"]) for record in test.read("out")]
        assert found == [(2000, 10)] * 3
        test.feed("in", [{"key": f"k{number}", "value": 7, "_timestamp": 9000} for number in range(30)])
        assert [(record["timestamp"], record["value"]["total"]) for record in test.read("out")] == [(3000, 30)]
        assert test.query("silence").all() == [{"value": 7, "rows": 30}]


@pytest.mark.parametrize("close_idle_ms", [None, 100])
def test_timers_fire_in_silence_only_with_close_idle(close_idle_ms: int | None) -> None:
    """No record comes after the first one, and the clock goes on: behind an exchange the timer fires nevertheless."""
    process, _ = silence(rekey(source("in"), "value"), close_idle_ms)
    with TestDriver("app", [sink(process, "out")]) as test:
        test.feed("in", [{"key": "k", "value": 1, "_timestamp": 1000}])
        test.advance("50 milliseconds")
        assert test.read("out") == []
        test.advance("1 minute")
        found = [(record["timestamp"], record["value"]["total"]) for record in test.read("out")]
    assert found == ([] if close_idle_ms is None else [(2000, 1)])
