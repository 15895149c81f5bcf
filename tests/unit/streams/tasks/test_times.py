"""Stream times of a batch, and the numbers of source partitions."""

import pyarrow as pa

from ottla.streams.planning.origins import Origins, find_origins
from ottla.streams.planning.planner import make_plan
from ottla.streams.tasks.placement import PARTITIONS_MAX, choose_partitions, number_sources
from ottla.streams.tasks.reading import NO_TIME, SourceRows
from ottla.streams.tasks.times import find_source_times
from tests.unit.pipeline.test_encoding import JAVA_HASHES
from tests.unit.streams.planning.topologies import count, rekey, select, sink, source

NUMBERS = {"a": 0, "b": 100}
FILLED = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_partitions_that_were_not_heard_of_have_no_time() -> None:
    heard = SourceRows(pa.table({}), pa.table({}), 5, {0: 5})
    behind_exchange = Origins(others=frozenset({"a"}))

    assert find_source_times([heard], behind_exchange, 1, FILLED, NUMBERS) == {0: 5, 1: NO_TIME}
    assert find_source_times([], Origins(own=frozenset({"b"})), 1, FILLED, NUMBERS) == {101: NO_TIME}


def test_origins_are_found_through_exchanges() -> None:
    counts = count(rekey(select(source("in")), "value"), "counts")
    origins = find_origins(make_plan("app", [sink(select(counts), "out")]))

    assert list(origins.values()) == [
        Origins(own=frozenset({"in"})),
        Origins(others=frozenset({"in"})),
        Origins(others=frozenset({"in"})),
    ]


def test_numbers_of_sources_stay_when_topics_are_added() -> None:
    one = number_sources(make_plan("app", [sink(source("a"), "out")]))
    two = number_sources(make_plan("app", [sink(source("b"), "out"), sink(source("a"), "out")]))

    assert two["a"] == one["a"]
    assert abs(two["a"] - two["b"]) >= PARTITIONS_MAX
    assert 0 <= two["a"] <= 2**31 - PARTITIONS_MAX


def test_keys_are_placed_as_the_java_client_places_them() -> None:
    keys = list(JAVA_HASHES)

    assert choose_partitions([*keys, None], 10, 7).tolist() == [*(JAVA_HASHES[key] % 10 for key in keys), 7]
