"""Stream-table joins against a model, for every cut of the input."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams import graph
from ottla.streams.kernels.joining import JoinShape
from ottla.streams.kernels.stream_table_joins import StreamTableJoinKernel
from ottla.streams.kernels.tables import SourceTableKernel
from ottla.streams.rows import HEADERS, ORDER, TIMESTAMP
from tests.unit.streams.kernels.harness import Event, State, cut, make_rows

STREAM = pa.schema([("user", pa.string()), ("page", pa.string())])
TABLE = pa.schema([("key", pa.string()), ("city", pa.string()), ("age", pa.int64())])
RESULT = pa.schema([("user", pa.string()), ("page", pa.string()), ("city", pa.string()), ("age", pa.int64())])


def shape_of(how: str) -> JoinShape:
    stream = graph.Node("stream", (), STREAM, ("user",))
    table = graph.Node("table", (), TABLE, ("key",), is_table=True)
    names = {"user": "user", "page": "page"}, {"city": "city", "age": "age"}
    return JoinShape.of(graph.StreamTableJoin("join-1", (stream, table), RESULT, ("user",), False, "join", how, *names))


def random_events(random: Random) -> list[Event]:
    events: list[Event] = []
    for place in range(random.randint(0, 40)):
        key = random.choice([None, "a", "b", "c"])
        event: Event = {"at": random.randint(0, 9), ORDER: place, "side": random.randint(0, 1), "user": key, "key": key}
        event["page"] = random.choice([None, "p", "q"])
        event["deleted"] = random.random() < 0.3
        if not event["deleted"]:
            event |= {"city": random.choice([None, "x", "y"]), "age": random.randint(0, 3)}
        events.append(event)
    return events


def model(how: str, events: list[Event]) -> tuple[list[tuple[Any, ...]], int]:
    """The rows of the result, and how many rows of the stream were dropped."""
    table: dict[str, Any] = {}
    found, dropped = [], 0
    for event in events:
        key = event["key"]
        if event["side"] == 1:
            if key is not None:
                table[key] = None if event["deleted"] else (event["city"], event["age"])
        elif event["page"] is None or (key is None and how == "inner"):
            dropped += 1
        elif how == "left" or table.get(key) is not None:
            found.append((key, event["page"], *(table.get(key) or (None, None)), event["at"], event[ORDER]))
    return found, dropped


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("size", ["one row per batch", "random cuts"])
def test_rows_meet_the_value_of_their_moment(how: str, size: str, seed: int) -> None:
    random = Random(seed)
    for _ in range(20):
        events = random_events(random)
        table = SourceTableKernel("table", "store", TABLE, ["key"], with_old=False)
        join = StreamTableJoinKernel("join-1", shape_of(how), "store")
        state = State()
        found: list[Event] = []
        dropped = 0
        for start, end in cut(None if size == "one row per batch" else random, len(events)):
            context = state.context(["store"])
            part = events[start:end]
            rows = make_rows(STREAM, [event for event in part if event["side"] == 0])
            source = make_rows(TABLE, [event for event in part if event["side"] == 1], is_table=True)
            found += join.process([rows, table.process([source], context)[0]], context)[0].to_pylist()
            state.commit(context, ["store"])
            state.index("store", source, TABLE, ["key"])
            dropped += sum(count for (label, _), count in context.dropped.items() if label == "join-1")
        columns = [*RESULT.names, TIMESTAMP, ORDER]
        assert ([tuple(row[name] for name in columns) for row in found], dropped) == model(how, events)


def test_a_row_keeps_its_headers() -> None:
    state = State()
    headers = [{"key": "h", "value": b"1"}]
    rows = make_rows(STREAM, [{"user": "a", "page": "p", "at": 1, "headers": headers}])
    join = StreamTableJoinKernel("join-1", shape_of("left"), "store")
    (found,) = join.process([rows, make_rows(TABLE, [], is_table=True)], state.context(["store"]))
    assert found.to_pylist()[0][HEADERS] == headers


def test_a_change_comes_before_the_row_of_the_same_record() -> None:
    # As when a stream is joined with itself as a table.
    state = State()
    rows = make_rows(STREAM, [{"user": "a", "page": "p", "at": 1, ORDER: 4}])
    changes = make_rows(TABLE, [{"key": "a", "city": "x", "age": 1, "at": 1, ORDER: 4}], is_table=True)
    (found,) = StreamTableJoinKernel("join-1", shape_of("inner"), "store").process(
        [rows, changes], state.context(["store"])
    )
    assert found.to_pylist()[0]["city"] == "x"
