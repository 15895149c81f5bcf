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


def run(
    how: str, events: list[Event], random: Random | None, *, is_source: bool, only_newest: bool = False
) -> list[Event]:
    kind = SourceTableKernel if is_source else DerivedTableKernel
    tables = [kind("left", "left-store", LEFT, ["id"], with_old=False), kind("right", "right-store", RIGHT, ["number"])]
    join = TableJoinKernel(shape_of(how), "left-store", "right-store", only_newest=only_newest)
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
        ids = output.column("id").to_pylist()
        assert not only_newest or len(set(ids)) == len(ids)
        state.commit(context, ["left-store", "right-store"] if is_source else [])
        if is_source:
            state.index("left-store", inputs[0], LEFT, ["id"])
            state.index("right-store", inputs[1], RIGHT, ["number"])
    return found


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("size", ["one row per batch", "random cuts"])
def test_every_change_is_the_one_of_kafka_streams(how: str, size: str, seed: int) -> None:
    # Row by row, and the same for every cut: results before and after, tombstones and times.
    random = Random(seed)
    for _ in range(sample_size(3, 100)):
        events = random_events(random)
        found = run(how, events, None if size == "one row per batch" else random, is_source=True)
        assert [simplify(row) for row in found] == model(how, events)


@pytest.mark.parametrize("how", HOWS)
def test_tables_with_a_changelog_of_their_own_end_the_same(how: str, seed: int) -> None:
    # Their own steps have written the whole batch before the join runs, and the join still sees each value in its time.
    random = Random(seed)
    for _ in range(sample_size(3, 100)):
        events = random_events(random)
        ends = []
        for rows in (run(how, events, random, is_source=False), run(how, events, None, is_source=True)):
            last = {row["id"]: simplify(row)[1] for row in rows}
            ends.append({key: value for key, value in last.items() if value is not None})
        assert ends[0] == ends[1]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("is_source", [True, False])
def test_the_newest_changes_alone_end_the_same(how: str, is_source: bool, seed: int) -> None:
    # Each change begins where the one before it has ended, and the last ones have the values and times of all changes.
    random = Random(seed)
    for _ in range(sample_size(6, 100)):
        events = random_events(random)
        found = run(how, events, random, is_source=is_source, only_newest=True)
        ends: dict[Any, Any] = {}
        for key, new, old, time in map(simplify, found):
            assert ends.get(key, (None, 0))[0] == old
            ends[key] = new, time
        expected: dict[Any, Any] = {key: (new, time) for key, new, _, time in model(how, events)}
        if not is_source:  # a derived table drops tombstones that nobody needs, and their times with them
            ends, expected = ({key: end[:1] for key, end in each.items()} for each in (ends, expected))
        final, wanted = ([item for item in sorted(each.items()) if item[1][0]] for each in (ends, expected))
        assert final == wanted


@pytest.mark.parametrize("how", HOWS)
def test_a_single_change_of_a_batch_is_always_the_newest(how: str, seed: int) -> None:
    events = random_events(Random(seed))
    found = run(how, events, None, is_source=True, only_newest=True)
    assert [simplify(row) for row in found] == model(how, events)


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
