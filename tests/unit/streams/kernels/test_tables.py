"""Changes of tables with the values before them, for every cut of the input."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams.kernels.tables import DerivedTableKernel, SourceTableKernel, ToTableKernel
from ottla.streams.rows import DELETED, OLD
from tests.unit.streams.kernels.harness import Event, State, cut, make_rows, run_alone

COLUMNS = pa.schema([("key", pa.string()), ("amount", pa.int64()), ("name", pa.string())])


def random_events(random: Random) -> list[Event]:
    """Changes of a few keys, out of order, with tombstones, repeated values and rows without a key."""
    events: list[Event] = []
    for _ in range(random.randint(0, 30)):
        event: Event = {"key": random.choice([None, "a", "b", "c", "\x00"]), "at": random.randint(0, 9)}
        if random.random() < 0.3:
            event["deleted"] = True
        else:
            event |= {"amount": random.randint(0, 2), "name": random.choice([None, "x"]), "deleted": False}
        events.append(event)
    return events


def model(events: list[Event], *, drops_needless: bool = False) -> list[tuple[Any, ...]]:
    """(key, value after, value before) of each change."""
    table: dict[str, Any] = {}
    found = []
    for event in events:
        key = event["key"]
        if key is None:
            continue
        new = None if event["deleted"] else {"amount": event["amount"], "name": event["name"]}
        old = table.get(key)
        table[key] = new
        if not (drops_needless and new is None and old is None):
            found.append((key, new, old))
    return found


def simplify(rows: list[Event]) -> list[tuple[Any, ...]]:
    values = [None if row[DELETED] else {"amount": row["amount"], "name": row["name"]} for row in rows]
    return [(row["key"], value, row.get(OLD)) for row, value in zip(rows, values, strict=True)]


@pytest.mark.parametrize("kind", [SourceTableKernel, ToTableKernel, DerivedTableKernel])
def test_changes_are_those_of_the_model_for_every_cut(kind: Any, seed: int) -> None:
    random = Random(seed)
    for _ in range(20):
        events = random_events(random)
        kernel = kind("table-1", "store", COLUMNS, ["key"])
        state = State()
        found: list[Event] = []
        for start, end in cut(random, len(events)):
            rows = make_rows(COLUMNS, events[start:end], first_order=start, is_table=True)
            found += run_alone(kernel, [[rows]], state)[0]
            if kind is SourceTableKernel:
                assert not any(context.stores["store"].changes for context in run_alone(kernel, [[rows]], state)[1])
                state.index("store", rows, COLUMNS, ["key"])
        assert simplify(found) == model(events, drops_needless=kind is DerivedTableKernel)


@pytest.mark.parametrize("kind", [SourceTableKernel, DerivedTableKernel])
def test_the_newest_changes_alone_end_the_same(kind: Any, seed: int) -> None:
    """Each change of a key begins where the one before has ended, and a batch has one for each key."""
    random = Random(seed)
    for _ in range(20):
        events, dropped = random_events(random), 0
        kernel = kind("table-1", "store", COLUMNS, ["key"], only_newest=True)
        state, ends = State(), dict[str, Any]()
        for start, end in cut(random, len(events)):
            rows = make_rows(COLUMNS, events[start:end], first_order=start, is_table=True)
            found, (context,) = run_alone(kernel, [[rows]], state)
            dropped += context.dropped["table-1", "null key"]
            assert len({row["key"] for row in found}) == len(found)
            for key, new, old in simplify(found):
                assert ends.get(key) == old
                ends[key] = new
            if kind is SourceTableKernel:
                state.index("store", rows, COLUMNS, ["key"])
        expected = {key: new for key, new, _ in model(events)}
        assert {key: new for key, new in ends.items() if new} == {key: new for key, new in expected.items() if new}
        assert dropped == sum(event["key"] is None for event in events)


def test_a_stream_becomes_a_table() -> None:
    # A row without values deletes its key, and a row without a key is dropped and counted.
    events: list[Event] = [
        {"key": "a", "amount": 1, "at": 5},
        {"key": "a", "name": "x", "at": 3},
        {"key": None, "amount": 1, "at": 5},
        {"key": "a", "at": 6},
        {"key": "b", "at": 6},
    ]
    rows, (context,) = run_alone(ToTableKernel("table-1", "store", COLUMNS, ["key"]), [[make_rows(COLUMNS, events)]])
    assert simplify(rows) == [
        ("a", {"amount": 1, "name": None}, None),
        ("a", {"amount": None, "name": "x"}, {"amount": 1, "name": None}),
        ("a", None, {"amount": None, "name": "x"}),
        ("b", None, None),
    ]
    assert context.dropped["table-1", "null key"] == 1
    assert context.stores["store"].changes == {b"a": None, b"b": None}


def test_values_are_readable_json() -> None:
    kernel = ToTableKernel("table-1", "store", COLUMNS, ["key"], with_old=False)
    rows, (context,) = run_alone(kernel, [[make_rows(COLUMNS, [{"key": "a", "amount": 1, "name": "x", "at": 5}])]])
    assert context.stores["store"].changes == {b"a": b'{"amount":1,"name":"x","_timestamp":5}'}
    assert OLD not in rows[0]


def test_a_filtered_row_has_no_values() -> None:
    # Spark leaves the values of a row that a filter marks as deleted.
    events: list[Event] = [{"key": "a", "amount": 1, "at": 5}, {"key": "a", "amount": 0, "at": 5, "deleted": True}]
    kernel = DerivedTableKernel("table-1", "store", COLUMNS, ["key"])
    rows, _ = run_alone(kernel, [[make_rows(COLUMNS, events, is_table=True)]])
    assert [row["amount"] for row in rows] == [1, None]


def test_keys_of_several_columns_and_no_values() -> None:
    # A table whose columns are all of the key still knows which keys exist.
    kernel = DerivedTableKernel("table-1", "store", COLUMNS, ["key", "amount", "name"])
    events: list[Event] = [
        {"key": "a", "amount": 1, "at": 5},
        {"key": "a", "amount": 2, "at": 5, "deleted": True},
        {"key": "a", "amount": 1, "at": 5, "deleted": True},
    ]
    rows, _ = run_alone(kernel, [[make_rows(COLUMNS, events, is_table=True)]])
    assert [(row["amount"], row[DELETED], row[OLD]) for row in rows] == [(1, False, None), (1, True, {})]
