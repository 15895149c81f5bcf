"""Which changes of an app its state survives."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest

from ottla.streams import graph
from ottla.streams.errors import IncompatibleTopology
from ottla.streams.graph import Node
from ottla.streams.planning.compatibility import add_former, check, describe_state
from ottla.streams.planning.planner import make_plan
from ottla.streams.windows import hopping, session, tumbling
from tests.unit.streams.planning.topologies import count, join, keep_if, rekey, select, sink, source, to_table


def describe(nodes: Sequence[Node], partitions: int = 3) -> dict[str, object]:
    """The description as it comes back from where the runner keeps it."""
    counts = {each.topic: partitions for each in graph.walk(nodes) if isinstance(each, graph.Source)}
    found: dict[str, object] = json.loads(json.dumps(describe_state(make_plan("app", nodes, counts), counts)))
    return found


def newest(kind: pa.DataType, *more: str) -> list[Node]:
    """A table whose value has the column `value` of this type."""
    plain = source("in", "value", *more)
    columns = pa.schema([pa.field("value", kind) if each.name == "value" else each for each in plain.columns])
    typed = graph.FunctionStep("map", (plain,), columns, plain.key, kind="map", function=lambda row: row)
    return [to_table(typed, "newest")]


JOINED = cast(graph.StreamJoin, join(graph.StreamJoin, source("a"), source("b"), "both"))
FOREIGN = cast(
    graph.ForeignKeyJoin,
    join(
        graph.ForeignKeyJoin,
        source("a", "value", "other", is_table=True),
        rekey(source("b", "id", is_table=True), "id"),
        "both",
    ),
)


def test_an_app_fits_itself_and_steps_without_state() -> None:
    plain = [sink(count(rekey(source("in"), "value"), "counts"), "out")]
    filtered = [sink(select(keep_if(count(rekey(keep_if(source("in")), "value"), "counts"))), "out")]

    check(describe(plain), describe(plain))
    check(describe(plain), describe(filtered))
    check(describe(filtered), describe(plain))


def test_grace_may_change_and_what_older_versions_did_not_note_fits() -> None:
    before = describe([count(source("in"), "counts", tumbling(10))])
    after = describe([count(source("in"), "counts", tumbling(10, grace=5))])
    check(before, after)
    for store in cast(dict[str, dict[str, object]], before["stores"]).values():
        del store["content"], store["functions"]
    check(before, after)


def test_columns_may_come_go_and_widen() -> None:
    check(describe(newest(pa.int32())), describe(newest(pa.int64(), "more")))
    check(describe(newest(pa.int64(), "more")), describe(newest(pa.int64())))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (newest(pa.int64()), newest(pa.string()), "column 'value' of store 'newest' was int64 and is string"),
        (newest(pa.int64()), newest(pa.int32()), "column 'value' of store 'newest' was int64 and is int32"),
        (
            [count(source("in", "a", "b"), "counts")],
            [count(rekey(source("in", "a", "b"), "a"), "counts")],
            "the key of store 'counts' was key string and is a int64",
        ),
        (
            [count(source("in"), "counts")],
            [count(source("in"), "counts"), count(rekey(source("in"), "value"), "others")],
            "store 'others' is new, but records of 'in' have been read already",
        ),
        (
            [count(source("in"), "counts", tumbling(10))],
            [count(source("in"), "counts", hopping(20, 10))],
            "store 'counts' has windows of 10 ms, and would have windows of 20 ms every 10 ms",
        ),
        (
            [count(source("in"), "counts", session(5))],
            [count(source("in"), "counts", session(6))],
            "store 'counts' has sessions with a gap of 5 ms, and would have sessions with a gap of 6 ms",
        ),
        (
            [replace(count(source("in"), "counts"), aggregation=(graph.BuiltInAggregate("max", "value", "count"),))],
            [count(source("in"), "counts")],
            "column 'count' of store 'counts' was computed by max and would be by count",
        ),
        (
            [replace(JOINED, before_ms=5)],
            [replace(JOINED, before_ms=6)],
            "store 'both-left' has rows by string that match 5 ms before and 0 ms after,"
            " and would have rows by string that match 6 ms before and 0 ms after",
        ),
        (
            [replace(FOREIGN, foreign_key=("value",))],
            [replace(FOREIGN, foreign_key=("other",))],
            "store 'both-subscriptions' has rows by value (int64), key string,"
            " and would have rows by other (int64), key string",
        ),
    ],
)
def test_what_would_give_wrong_results_is_refused(old: list[Node], new: list[Node], reason: str) -> None:
    with pytest.raises(IncompatibleTopology) as refused:
        check(describe(old), describe(new))
    assert str(refused.value) == f"app: {reason}. ottla stream reset app rebuilds the state from the topics"


def test_another_number_of_partitions_is_refused() -> None:
    nodes = [count(source("in"), "counts")]

    with pytest.raises(IncompatibleTopology, match="topic 'in' had 3 partitions and has 4"):
        check(describe(nodes), describe(nodes, 4))


def test_a_new_store_may_read_a_topic_from_its_beginning() -> None:
    """Column steps of its own give the new step positions of its own."""
    lines = source("in")
    before = [count(lines, "counts")]
    after = [*before, count(rekey(select(lines), "value"), "others")]

    check(describe(before), describe(after))


A, B = source("a"), source("b")
COPIED_A: list[Node] = [sink(A, "out")]
COUNTED_B: list[Node] = [count(B, "counts")]


def start(*versions: list[Node]) -> None:
    """Start an app with one topology after the other."""
    last: dict[str, object] | None = None
    for nodes in versions:
        new = describe(nodes)
        if last is not None:
            check(last, new)
            new = json.loads(json.dumps(add_former(last, new)))
        last = new


def test_a_store_that_comes_back_goes_on_where_it_was_left() -> None:
    """Its changelog and the position of its topic are still there and fit each other."""
    start(COUNTED_B, COPIED_A, COPIED_A, COUNTED_B)
    start(COUNTED_B, COPIED_A, COPIED_A + COUNTED_B, COPIED_A, COUNTED_B)


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (
            (COUNTED_B, COPIED_A, COPIED_A, [count(B, "others")]),
            "store 'others' is new, but records of 'b' have been read already",
        ),
        (
            ([sink(B, "out")], COPIED_A, COUNTED_B),
            "store 'counts' is new, but records of 'b' have been read already",
        ),
        (
            (COUNTED_B, [sink(B, "out")], COPIED_A, COUNTED_B),
            "store 'counts' was left out for a time in which records of 'b' were read",
        ),
        (
            (COUNTED_B, COPIED_A, [count(rekey(B, "value"), "counts")]),
            "the key of store 'counts' was key string and is value int64",
        ),
    ],
)
def test_what_was_left_behind_is_not_forgotten(versions: tuple[list[Node], ...], reason: str) -> None:
    """A topology in between that has neither the topic nor the store makes no difference."""
    start(*versions[:-1])
    with pytest.raises(IncompatibleTopology) as refused:
        start(*versions)
    assert str(refused.value) == f"app: {reason}. ottla stream reset app rebuilds the state from the topics"
