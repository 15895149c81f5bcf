"""The test driver: topics, batches, time and state in memory."""

from collections.abc import Callable
from functools import partial

import pytest

from ottla.streams import graph
from ottla.streams.errors import StreamsError
from ottla.streams.options import AppOptions
from ottla.streams.testing import TestDriver
from ottla.streams.windows import session, tumbling
from tests.unit.streams.planning.topologies import count, join, keep_if, rekey, sink, source, to_table


def test_rows_reach_their_topic_with_key_time_and_headers() -> None:
    with TestDriver("app", [sink(keep_if(source("in"), lambda row: row["value"] > 1), "out")]) as test:
        test.feed("in", [{"key": "a", "value": 1}, {"key": "a", "value": 2, "_headers": [("h", b"x")]}], timestamp=5)

        assert test.read("out") == [{"key": "a", "value": {"value": 2}, "timestamp": 5, "headers": [("h", b"x")]}]
        assert test.read("out") == []


def test_equal_keys_are_in_equal_partitions_of_all_topics() -> None:
    """As a producer of Kafka's places them, so a topic of the same app can be joined with what it has written."""
    with TestDriver("app", [sink(source("in"), "out")], partitions=5) as test:
        test.feed("in", [{"key": str(number), "value": number} for number in range(40)])
        test.read("out")

        places = [[record.key for record in test.topic(name).partitions[3]] for name in ("in", "out")]
        assert places[0] == places[1] != []


@pytest.mark.parametrize("split", [None, 1, 2, 3])
def test_a_count_behind_an_exchange_is_the_same_for_every_cut(split: int | None) -> None:
    counts = count(rekey(source("in"), "value"), "counts")
    with TestDriver("app", [sink(counts, "out")], split=split) as test:
        test.feed("in", [{"key": str(number), "value": number % 3} for number in range(30)])

        assert test.table("out") == {(0,): {"count": 10}, (1,): {"count": 10}, (2,): {"count": 10}}
        assert test.query("counts").get(1) == {"value": 1, "count": 10}
        assert sorted(row["value"] for row in test.query("counts").all()) == [0, 1, 2]


def test_a_source_table_is_there_for_the_next_batch() -> None:
    views, users = source("views"), source("users", is_table=True)
    with TestDriver("app", [sink(join(graph.StreamTableJoin, views, users, "joined"), "out")]) as test:
        test.feed("users", [{"key": "a", "value": 7}, {"key": "b", "value": 8}])
        test.feed("users", [{"key": "b"}])
        test.feed("views", [{"key": "a", "value": 1}, {"key": "b", "value": 2}])

        assert [record["value"] for record in test.read("out")] == [{"value": 1, "right_value": 7}]
        assert test.query("users").all() == [{"key": "a", "value": 7}]


@pytest.mark.parametrize(
    ("make", "times"),
    [
        (count, {b"a": [30], b"b": [20]}),  # the highest time of the rows, as in Kafka
        (to_table, {b"a": [10], b"b": [20]}),  # the time of the newest row
        (partial(count, window=tumbling(25, grace=100)), {b"a": [10, 30], b"b": [20]}),
        (partial(count, window=session(5, grace=100)), {b"a": [10, 30], b"b": [20]}),
    ],
)
def test_a_changelogs_record_has_the_time_of_its_own_rows(
    make: Callable[[graph.Node, str], graph.Node], times: dict[bytes, list[int]]
) -> None:
    """The last row of the batch, with the time 10, is late for none of them."""
    with TestDriver("app", [make(source("in"), "state")], partitions=1) as test:
        rows = [{"key": "a", "value": 1, "_timestamp": 30}, {"key": "b", "value": 2, "_timestamp": 20}]
        test.feed("in", [*rows, {"key": "a", "value": 3, "_timestamp": 10}])

        (records,) = test.topic("app-state-changelog").partitions
        found: dict[bytes, list[int]] = {}
        for each in records:
            assert each.key is not None
            found.setdefault(each.key[:1], []).append(each.timestamp_ms)
        assert {key: sorted(each) for key, each in found.items()} == times


def test_a_deleted_key_is_a_record_without_a_value() -> None:
    with TestDriver("app", [sink(to_table(source("in"), "newest"), "out")]) as test:
        test.feed("in", [{"key": "a", "value": 1}])
        test.feed("in", [{"key": "a"}])

        assert [record["value"] for record in test.read("out")] == [{"value": 1}, None]
        assert test.table("out") == {}


def test_bad_records_fail_or_are_set_aside() -> None:
    nodes = [sink(source("in"), "out")]
    with TestDriver("app", nodes, partitions=1) as test, pytest.raises(StreamsError, match="in-0@0: value"):
        test.feed_records("in", [(b"a", b"{")])
    with TestDriver("app", nodes, partitions=1, options=AppOptions("app", on_bad_record="skip")) as test:
        test.feed_records("in", [(b"a", b"{"), (b"a", b'{"value": 1}')])

        assert [record["value"] for record in test.read("out")] == [{"value": 1}]
        assert [record["value"] for record in test.bad] == [b"{"]


def test_what_cannot_be_processed_becomes_dead_letters() -> None:
    """A bad record as it was, a row for which a function fails as JSON, in the topic that a running app writes."""
    nodes = [sink(keep_if(source("in"), lambda row: 1 / row["value"] > 0), "out")]
    options = AppOptions("app", on_bad_record="dead-letter", on_error="dead-letter")
    with TestDriver("app", nodes, partitions={"in": 1, "out": 1}, options=options, start_ms=7) as test:
        test.feed_records("in", [(b"a", b"{"), (b"b", b'{"value": 0}'), (b"c", b'{"value": 1}')])

        assert [record["key"] for record in test.read("out")] == ["c"]
        letters = test.read("app-dead-letters")
        assert [(each["key"], each["value"], each["timestamp"]) for each in letters] == [
            (b"a", b"{", 7),
            (None, b'{"key":"b","value":0}', 7),
        ]
        headers = dict(letters[1]["headers"])
        assert headers["__connect.errors.offset"] == b"1"
        assert headers["__connect.errors.exception.message"] == b"ZeroDivisionError: division by zero"


def test_a_topic_or_store_that_is_not_there_is_named() -> None:
    with TestDriver("app", [count(source("in"), "counts")]) as test:
        with pytest.raises(StreamsError, match="does not read the topic 'other'; it reads in"):
            test.feed("other", [])
        with pytest.raises(StreamsError, match="no store 'other'; there are counts"):
            test.query("other")
