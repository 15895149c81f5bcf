"""Where the planner cuts a topology, and how it names what it makes."""

from typing import Any

import pytest

from ottla.streams import graph
from ottla.streams.errors import TopologyError
from ottla.streams.planning.plan import PARCELS, AppPlan
from ottla.streams.planning.planner import make_plan
from ottla.streams.processors import Context, Processor
from tests.unit.streams.planning.topologies import (
    count,
    join,
    keep_if,
    merge,
    rekey,
    select,
    sink,
    source,
    to_table,
)


def shape(plan: AppPlan) -> list[tuple[list[str], list[str | None]]]:
    """What each subtopology reads and writes."""
    return [([each.topic for each in unit.sources], [each.topic for each in unit.sinks]) for unit in plan.subtopologies]


def topics(plan: AppPlan) -> dict[str, int | None]:
    return {topic.name: topic.partitions for topic in plan.internal_topics}


def test_steps_without_a_key_are_one_subtopology() -> None:
    plan = make_plan("app", [sink(keep_if(select(source("in"))), "out")])

    assert shape(plan) == [(["in"], ["out"])]
    assert len(plan.subtopologies[0].column_steps) == 1
    assert [step.label for step in plan.subtopologies[0].steps] == ["filter"]
    assert plan.internal_topics == ()


def test_a_count_by_the_key_of_the_topic_needs_no_exchange() -> None:
    plan = make_plan("app", [sink(count(source("in"), "counts"), "out")], {"in": 4})

    assert shape(plan) == [(["in"], ["out"])]
    assert topics(plan) == {"app-counts-changelog": 4}
    assert plan.subtopologies[0].name == "counts"


def test_a_count_by_another_key_goes_through_a_repartition_topic() -> None:
    plan = make_plan("app", [sink(count(rekey(source("in"), "value"), "counts"), "out")], {"in": 4})

    assert shape(plan) == [(["in"], ["app-counts-repartition"]), (["app-counts-repartition"], ["out"])]
    assert topics(plan) == {"app-counts-repartition": 4, "app-counts-changelog": 4}
    (sent,) = plan.subtopologies[0].sinks
    assert (sent.holds, sent.partition_by, sent.columns.names) == (PARCELS, ("value",), ["value", "count"])
    assert [each.name for each in plan.subtopologies] == ["in-to-counts-repartition", "counts"]


def test_a_key_that_kafka_serializes_otherwise_is_not_trusted() -> None:
    """JSON keys can be written in several ways, so equal keys may be in different partitions."""
    plan = make_plan("app", [sink(count(source("in", json_key=True), "counts"), "out")])

    assert "app-counts-repartition" in topics(plan)


def test_steps_without_state_change_no_names() -> None:
    plain = make_plan("app", [sink(count(rekey(source("in"), "value"), "counts"), "out")])
    filtered = make_plan("app", [sink(keep_if(count(rekey(keep_if(select(source("in"))), "value"), "counts")), "out")])

    assert [each.name for each in filtered.subtopologies] == [each.name for each in plain.subtopologies]
    assert topics(filtered) == topics(plain)


def test_branches_share_a_subtopology_unless_their_columns_differ() -> None:
    lines = source("in")
    plan = make_plan("app", [sink(keep_if(lines), "a"), sink(count(lines, "counts"), "b"), sink(select(lines), "c")])

    assert shape(plan) == [(["in"], ["a", "b"]), (["in"], ["c"])]
    assert [unit.group for unit in plan.subtopologies] == ["app", "app-in-to-c"]


def test_a_merge_needs_no_topic_of_its_own() -> None:
    merged = merge(select(source("a")), keep_if(source("b")))
    plan = make_plan(
        "app", [sink(merged, "out"), sink(count(rekey(merged, "value"), "counts"), "counts")], {"a": 2, "b": 6}
    )

    assert shape(plan) == [
        (["a"], ["out", "app-counts-repartition"]),
        (["b"], ["out", "app-counts-repartition"]),
        (["app-counts-repartition"], ["counts"]),
    ]
    assert topics(plan)["app-counts-repartition"] == 6


def test_a_count_of_merged_topics_that_are_partitioned_alike_reads_both() -> None:
    merged = merge(source("a"), source("b"))

    assert shape(make_plan("app", [count(merged, "counts")], {"a": 2, "b": 2})) == [(["a", "b"], [])]
    assert len(make_plan("app", [count(merged, "counts")], {"a": 2, "b": 3}).subtopologies) == 3


def test_columns_after_another_step_get_a_subtopology_of_their_own() -> None:
    plan = make_plan("app", [sink(select(count(source("in"), "counts")), "out")], {"in": 3})

    assert shape(plan) == [(["in"], ["app-out-rows"]), (["app-out-rows"], ["out"])]
    (sent,) = plan.subtopologies[0].sinks
    assert (sent.partition_by, sent.is_table) == (None, True)
    assert plan.subtopologies[1].sources[0].is_table


def test_columns_before_a_join_get_a_subtopology_of_their_own() -> None:
    views, users = select(source("views")), source("users", is_table=True)
    plan = make_plan("app", [sink(join(graph.StreamTableJoin, views, users, "enriched"), "out"), users])

    assert shape(plan) == [(["views"], ["app-enriched-rows"]), (["app-enriched-rows", "users"], ["out"])]
    assert plan.stores["users"].spec.is_source
    assert plan.stores["users"].changelog == "users"


def test_a_join_of_equal_topics_is_one_subtopology() -> None:
    views, users = keep_if(source("views")), source("users", is_table=True)
    plan = make_plan(
        "app", [sink(join(graph.StreamTableJoin, views, users, "enriched"), "out")], {"views": 3, "users": 3}
    )

    assert shape(plan) == [(["views", "users"], ["out"])]
    assert plan.internal_topics == ()


def test_a_stream_comes_to_the_partitions_of_the_table() -> None:
    views, users = source("views"), source("users", is_table=True)
    joined = join(graph.StreamTableJoin, views, users, "enriched")
    plan = make_plan("app", [sink(joined, "out")], {"views": 8, "users": 3})

    assert shape(plan) == [
        (["views"], ["app-enriched-left-repartition"]),
        (["app-enriched-left-repartition", "users"], ["out"]),
    ]
    assert topics(plan) == {"app-enriched-left-repartition": 3}


def test_of_two_tables_the_one_with_fewer_partitions_moves() -> None:
    small, large = source("small", is_table=True), source("large", is_table=True)
    plan = make_plan("app", [sink(join(graph.TableJoin, small, large, "both"), "out")], {"small": 2, "large": 5})

    assert topics(plan) == {"app-both-left-repartition": 5, "app-both-left-changelog": 5}
    assert sorted(plan.stores) == ["both-left", "large"]


def test_sides_with_new_keys_meet_in_the_larger_number_of_partitions() -> None:
    left, right = rekey(source("a"), "value"), to_table(rekey(source("b", "value", "more"), "value"), "newest")
    joined = join(graph.StreamTableJoin, left, right, "joined")
    plan = make_plan("app", [sink(joined, "out")], {"a": 2, "b": 7})

    assert topics(plan)["app-joined-left-repartition"] == topics(plan)["app-newest-repartition"] == 7


def test_what_a_processor_makes_keeps_its_key() -> None:
    class Pass(Processor):
        def process(self, row: dict[str, Any], context: Context) -> list[dict[str, Any]]:
            return [row]

    rows = source("in")
    processed = graph.Process("pass", (rows,), rows.columns, rows.key, name="pass", processor=Pass)

    assert shape(make_plan("app", [sink(count(processed, "counts"), "out")])) == [(["in"], ["out"])]


def test_a_name_may_be_used_once() -> None:
    lines = source("in")

    with pytest.raises(TopologyError, match="the name 'same' is taken"):
        make_plan("app", [count(lines, "same"), count(keep_if(lines), "same")])


def test_a_missing_topic_is_named() -> None:
    with pytest.raises(TopologyError, match="topic 'in' does not exist: ottla topic create in"):
        make_plan("app", [sink(source("in"), "out")], {})
