"""Tables that are only there for queries move on with another subtopology that reads their topic."""

import threading
from typing import Any

import pytest

from ottla.streams.graph import Node
from ottla.streams.planning.planner import make_plan
from ottla.streams.running.following import Following, find_leaders
from ottla.streams.running.work import Position
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S
from tests.unit.streams.planning.topologies import count, keep_if, rekey, select, sink, source

WHERE = TopicPartition("in", 0)


def leaders(*nodes: Node) -> dict[str, str]:
    return find_leaders(make_plan("app", nodes))


def test_a_table_follows_the_columns_that_read_its_topic() -> None:
    table = source("in", is_table=True)
    assert leaders(table, sink(select(table), "out")) == {"in": "in-to-out"}
    assert leaders(table, sink(count(rekey(select(table), "value"), "counts"), "out")) == {"in": "counts-source"}


def test_a_table_of_which_something_is_made_has_tasks_of_its_own() -> None:
    """Also one that nobody else reads: its tasks find the bad records."""
    table, other = source("in", is_table=True), source("other")
    assert leaders(table, sink(table, "copy"), sink(select(table), "out")) == {}
    assert leaders(table, count(rekey(table, "value"), "counts")) == {}
    assert leaders(table, sink(keep_if(other), "out")) == {}


@pytest.mark.parametrize(("options", "follows"), [({}, True), ({"time": "value"}, False), ({"start": "latest"}, False)])
def test_a_stream_leads_only_if_it_finds_the_same_records_bad(options: dict[str, Any], follows: bool) -> None:
    table, stream = source("in", is_table=True), source("in", **options)
    assert leaders(table, sink(stream, "out")) == ({"in": "in-to-out"} if follows else {})


def test_a_follower_hears_only_of_positions_beyond_its_own() -> None:
    table = source("in", is_table=True)
    plan = make_plan("app", [table, sink(select(table), "out")])
    following, (_, leader) = Following(plan), plan.subtopologies
    following.note(leader, 0, [Position(5, 1000)])
    following.note(leader, 1, [Position(9, 1000)])
    assert following.await_beyond(leader.name, {WHERE: 4}) == {WHERE: Position(5, 1000)}
    assert following.await_beyond(leader.name, {WHERE: 5}) == {}
    assert following.await_beyond(leader.name, {TopicPartition("in", 2): 0}) == {}


def test_a_follower_is_woken() -> None:
    table = source("in", is_table=True)
    plan = make_plan("app", [table, sink(select(table), "out")])
    following, (_, leader) = Following(plan), plan.subtopologies
    found: dict[TopicPartition, Position] = {}

    def follow() -> None:
        while not found:
            found.update(following.await_beyond(leader.name, {WHERE: 0}))

    thread = threading.Thread(target=follow)
    thread.start()
    following.note(leader, 0, [Position(3, 1000)])
    thread.join(PATIENCE_S)
    assert found == {WHERE: Position(3, 1000)}
