"""Table-table joins against a model of Kafka Streams, for every cut of the input."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams import graph
from ottla.streams.kernels.joining import JoinShape
from ottla.streams.kernels.table_joins import TableJoinKernel
from ottla.streams.kernels.tables import DerivedTableKernel, SourceTableKernel
from ottla.streams.rows import DELETED, OLD, ORDER, TIMESTAMP
from tests.samples import sample_size
from tests.unit.streams.kernels.harness import Event, State, cut, make_rows

LEFT = pa.schema([("id", pa.int64()), ("name", pa.string())])
RIGHT = pa.schema([("number", pa.int64()), ("name", pa.string()), ("city", pa.string())])
NAMES = {"number": "number", "name": "right_name", "city": "city"}
RESULT = pa.schema([*LEFT, ("number", pa.int64()), ("right_name", pa.string()), ("city", pa.string())])
HOWS = ["inner", "left", "outer"]


def shape_of(how: str) -> JoinShape:
    left = graph.Node("left", (), LEFT, ("id",), is_table=True)
    right = graph.Node("right", (), RIGHT, ("number",), is_table=True)
    node = graph.TableJoin(
        "join-1", (left, right), RESULT, ("id",), True, "join", how,
        {"id": "id", "name": "name"}, NAMES,
    )  # fmt: skip
    return JoinShape.of(node)


def random_events(random: Random) -> list[Event]:
    events: list[Event] = []
    for place in range(random.randint(0, 40)):
        side, key = random.randint(0, 1), random.randint(1, 3)
        event: Event = {"side": side, ["id", "number"][side]: key, "at": random.randint(0, 20), ORDER: place}
        event["deleted"] = random.random() < 0.35
        if not event["deleted"]:
            event |= {"name": random.choice([None, "x", "y"]), "city": random.choice(["a", "b"])}
        events.append(event)
    return events


def model(how: str, events: list[Event]) -> list[tuple[Any, ...]]:
    """What KTableKTableInnerJoin, LeftJoin, RightJoin and OuterJoin forward: key, new value, old value, time."""
    tables: list[dict[int, tuple[Any, int]]] = [{}, {}]
    found = []

    def join(left: Any, right: Any) -> Any:
        exists = {"inner": left and right, "left": left, "outer": left or right}[how]
        return ((left or {}).get("name"), (right or {}).get("name"), (right or {}).get("city")) if exists else None

    for event in events:
        side, key = event["side"], event["number" if event["side"] else "id"]
        old, _ = tables[side].get(key, (None, -1))
        new = None if event["deleted"] else {"name": event["name"], "city": event["city"]}
        if new is None:
            tables[side].pop(key, None)
        else:
            tables[side][key] = (new, event["at"])
        other, other_time = tables[1 - side].get(key, (None, -1))
        must_match = how == "inner" or (how == "left" and side == 1)
        if other is None and (must_match or (old is None and new is None)):
            continue
        results = [join(value, other) if side == 0 else join(other, value) for value in (new, old)]
        found.append((key, *results, max(event["at"], other_time)))
    return found


def simplify(row: Event) -> tuple[Any, ...]:
    new, old = ((each["name"], each["right_name"], each["city"]) if each else None for each in (row, row[OLD]))
    return row["id"], None if row[DELETED] else new, old, row[TIMESTAMP]


def run(how: str, events: list[Event], random: Random | None, *, is_source: bool) -> list[Event]:
    kind = SourceTableKernel if is_source else DerivedTableKernel
    tables = [kind("left", "left-store", LEFT, ["id"], with_old=False), kind("right", "right-store", RIGHT, ["number"])]
    join = TableJoinKernel(shape_of(how), "left-store", "right-store")
    state = State()
    found: list[Event] = []
    for start, end in cut(random, len(events)):
        context = state.context(["left-store", "right-store"])
        inputs = [
            make_rows(columns, [event for event in events[start:end] if event["side"] == side], is_table=True)
            for side, columns in enumerate((LEFT, RIGHT))
        ]
        changes = [table.process([rows], context)[0] for table, rows in zip(tables, inputs, strict=True)]
        output = join.process(changes, context)[0]
        assert output.column(ORDER).to_pylist() == sorted(output.column(ORDER).to_pylist())
        found += output.to_pylist()
        state.commit(context, ["left-store", "right-store"] if is_source else [])
        if is_source:
            state.index("left-store", inputs[0], LEFT, ["id"])
            state.index("right-store", inputs[1], RIGHT, ["number"])
    return found


@pytest.mark.sample("table joins beside a model", 5)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("size", ["one row per batch", "random cuts"])
def test_every_change_is_the_one_of_kafka_streams(how: str, size: str, seed: int) -> None:
    # Row by row, and the same for every cut: results before and after, tombstones and times.
    random = Random(seed)
    for _ in range(sample_size(5, 100)):
        events = random_events(random)
        found = run(how, events, None if size == "one row per batch" else random, is_source=True)
        assert [simplify(row) for row in found] == model(how, events)


@pytest.mark.sample("table joins beside a model", 5)
@pytest.mark.parametrize("how", HOWS)
def test_tables_with_a_changelog_of_their_own_end_the_same(how: str, seed: int) -> None:
    # Their own steps have written the whole batch before the join runs, and the join still sees each value in its time.
    random = Random(seed)
    for _ in range(sample_size(5, 100)):
        events = random_events(random)
        ends = []
        for rows in (run(how, events, random, is_source=False), run(how, events, None, is_source=True)):
            last = {row["id"]: simplify(row)[1] for row in rows}
            ends.append({key: value for key, value in last.items() if value is not None})
        assert ends[0] == ends[1]


def test_the_key_of_the_right_side_is_null_where_it_has_no_row() -> None:
    events: list[Event] = [
        {"side": 0, "id": 1, "name": "x", "at": 1, ORDER: 0},
        {"side": 1, "number": 2, "name": "y", "city": "a", "at": 1, ORDER: 1},
    ]
    found = run("outer", events, Random(0), is_source=True)
    assert [(row["id"], row["name"], row["number"], row["city"]) for row in found] == [
        (1, "x", None, None),
        (2, None, 2, "a"),
    ]
