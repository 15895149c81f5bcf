"""Of which tables the newest change of a key is enough, and which columns the readers of a step need."""

from typing import Any

import pyarrow as pa
import pytest

from ottla.streams import graph
from ottla.streams.graph import Node
from ottla.streams.planning.needs import Needs
from ottla.streams.planning.plan import AppPlan
from ottla.streams.planning.planner import make_plan
from tests.unit.streams.planning.topologies import count, join, rekey, select, sink, source

PYTHON = graph.PythonAggregate(dict, lambda value, row: value, lambda value, row: value)


def tables() -> tuple[Node, Node]:
    return source("a", is_table=True), source("b", is_table=True)


def to_stream(node: Node) -> Node:
    return graph.ToStream("to_stream", (node,), node.columns, node.key)


def only_newest(plan: AppPlan) -> list[bool]:
    """Of the kernels that can do with the newest change of a key."""
    kernels = [step.kernel for unit in plan.subtopologies for step in unit.steps]
    return [kernel.only_newest for kernel in kernels if hasattr(kernel, "only_newest")]


def make_reader(kind: str, joined: Node) -> Node:
    match kind:
        case "topic":
            return sink(joined, "out")
        case "topic of each row":
            return graph.Sink("to", (joined,), joined.columns, joined.key, topic_column="value")
        case "aggregate":
            return count(rekey(joined, "value"), "counts")
        case "aggregate in Python":
            counted: Any = count(rekey(joined, "value"), "counts")
            return graph.Aggregate(
                "counts", counted.inputs, counted.columns, counted.key, name="counts", aggregation=PYTHON
            )
        case "join":
            return sink(join(graph.TableJoin, joined, source("c", is_table=True), "second"), "out")
        case "join of a stream":
            return sink(join(graph.StreamTableJoin, source("c"), joined, "second"), "out")
        case _:
            return sink(to_stream(joined), "out")


@pytest.mark.parametrize(
    ("kind", "is_enough"),
    [
        ("topic", True),
        ("topic of each row", False),
        ("aggregate", True),
        ("aggregate in Python", False),
        ("join", True),
        ("join of a stream", False),
        ("stream", False),
    ],
)
def test_a_join_passes_on_the_newest_changes_if_all_readers_do_with_them(kind: str, is_enough: bool) -> None:
    joined = join(graph.TableJoin, *tables(), "joined")
    needs = Needs(graph.walk([make_reader(kind, joined)]))
    assert needs.is_newest_enough(joined) is is_enough
    both = Needs(graph.walk([make_reader(kind, joined), sink(to_stream(joined), "stream")]))
    assert not both.is_newest_enough(joined)


def test_a_table_that_is_grouped_anew_needs_the_newest_changes_only() -> None:
    table = source("in", is_table=True)
    assert only_newest(make_plan("app", [count(rekey(table, "value"), "counts")])) == [True]
    plan = make_plan("app", [count(rekey(select(table), "value"), "counts")])
    assert only_newest(plan) == [True]
    assert [unit.only_newest for unit in plan.subtopologies] == [True, False]


def test_rows_of_several_source_partitions_all_go_through_spark() -> None:
    joined = join(graph.TableJoin, *tables(), "joined")
    plan = make_plan("app", [count(rekey(select(joined), "value"), "counts")])
    assert [bool(unit.column_steps) for unit in plan.subtopologies] == [False, True, False]
    assert not any(unit.only_newest for unit in plan.subtopologies)


def test_rows_that_also_go_elsewhere_all_go_through_spark() -> None:
    """The store takes the newest of them, the topic takes all."""
    selected = select(source("in", is_table=True))
    plan = make_plan("app", [count(rekey(selected, "value"), "counts"), sink(selected, "out")])
    assert only_newest(plan) == [True]
    assert [unit.only_newest for unit in plan.subtopologies] == [False, False]


def group(step: Node) -> Node:
    """A count by `value`, which needs no other column."""
    columns = pa.schema([step.columns.field("value")])
    return count(graph.Rekey("group", (step,), columns, ("value",), step.is_table), "counts")


@pytest.mark.parametrize("is_table", [True, False])
def test_a_step_makes_the_columns_that_its_readers_need(is_table: bool) -> None:
    step = select(source("in", "value", "more", is_table=is_table))
    plan = make_plan("app", [group(step)])
    after = plan.subtopologies[0].columns_after
    assert after is not None
    assert [name for name in after.names if not name.startswith("_")] == (["key", "value"] if is_table else ["value"])
    if is_table:
        assert plan.stores["counts-source"].value_columns.names == ["value"]


def test_a_step_that_something_else_reads_makes_all_columns() -> None:
    step = select(source("in", "value", "more", is_table=True))
    plan = make_plan("app", [group(step), sink(step, "out")])
    assert len([unit for unit in plan.subtopologies if unit.column_steps]) == 1
    assert plan.stores["counts-source"].value_columns.names == ["value", "more"]
