"""Tumbling and hopping windows against a naive model, for every cut of the input and several source partitions."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams.graph import BuiltInAggregate
from ottla.streams.kernels.kernel import Kernel
from ottla.streams.kernels.windowed import PartialWindowAggregate, WindowedAggregateKernel
from ottla.streams.rows import OLD, TIMESTAMP
from ottla.streams.windows import END, START, Window, hopping, tumbling
from tests.samples import sample_size
from tests.unit.streams.kernels.harness import (
    Event,
    State,
    cut,
    make_rows,
    run_chain,
    times_by_batch,
    with_stream_times,
)

COLUMNS = pa.schema([("key", pa.string()), ("number", pa.int64())])
TIME = pa.timestamp("us", "UTC")
KEY = ("key", START, END)
RESULT = pa.schema([("key", pa.string()), (START, TIME), (END, TIME), ("total", pa.int64()), ("last", pa.int64())])
AGGREGATES = (BuiltInAggregate("sum", "number", "total"), BuiltInAggregate("last", "number", "last"))
STORES = ("windows", "windows-closing")


def make_kernels(window: Window, emit: str = "update", retention_ms: int = 1_000_000) -> list[Kernel]:
    return [
        PartialWindowAggregate("agg", COLUMNS, KEY, window, AGGREGATES),
        WindowedAggregateKernel(
            "agg", "windows", RESULT, KEY, window, AGGREGATES, emit=emit, retention_ms=retention_ms
        ),
    ]


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def summary(row: Event) -> tuple[Any, ...]:
    """Key, start in milliseconds, total and last value of an emitted row."""
    return row["key"], round(row[START].timestamp() * 1000), row["total"], row["last"]


def model(window: Window, events: list[Event]) -> tuple[dict[tuple[str, int], list[Event]], list[Event]]:
    """The rows of each window by key and start, and the late rows, by Kafka's rules, one row at a time."""
    windows: dict[tuple[str, int], list[Event]] = {}
    late = []
    for event in events:
        if event["key"] is None:
            continue
        is_late = True
        start = max(0, event["at"] - window.size_ms + window.advance_ms) // window.advance_ms * window.advance_ms
        while start <= event["at"]:
            if start + window.size_ms > event["stream_time"] - window.grace_ms:
                windows.setdefault((event["key"], start), []).append(event)
                is_late = False
            start += window.advance_ms
        if is_late:
            late.append(event)
    return windows, late


def random_window(random: Random) -> Window:
    size = random.randint(1, 12)
    grace = random.choice([0, 0, 3, 20])
    return tumbling(size, grace=grace) if random.random() < 0.5 else hopping(size, random.randint(1, size), grace=grace)


def random_events(random: Random, sources: int) -> list[Event]:
    """Rows that come out of order and drift forward, a partition at its own speed."""
    speeds = [random.randint(1, 3) for _ in range(sources)]
    places = [0] * sources
    events: list[Event] = []
    for number in range(random.randint(0, 60)):
        source = random.randrange(sources)
        places[source] += random.randint(0, speeds[source])
        time = max(0, places[source] - random.choice([0, 0, 1, 5, 15]))
        key = random.choice([None, "a", "b", "\x00"])
        events.append({"key": key, "number": number, "at": time, "source": source})
    return with_stream_times(events)


@pytest.mark.parametrize("number", range(sample_size(6, 400)))
def test_updates_end_with_what_the_model_has(seed: int, number: int) -> None:
    """Every update follows the one before, and the last one of each window has all of its rows."""
    random = Random(f"{seed}-{number}")
    window, sources = random_window(random), random.randint(1, 3)
    events = random_events(random, sources)
    ranges = cut(random, len(events))
    batches, contexts = run_chain(
        make_kernels(window),
        [make_rows(COLUMNS, events[start:end], first_order=start) for start, end in ranges],
        settings=times_by_batch(events, ranges, sources),
    )
    windows, late = model(window, events)
    table: dict[tuple[str, int], Event] = {}
    for row in (row for batch in batches for row in batch):
        key, start, *_ = summary(row)
        assert row[OLD] == (
            {name: table[key, start][name] for name in ("total", "last")} if (key, start) in table else None
        )
        assert row[END] == at(start + window.size_ms)
        table[key, start] = row
    assert {name: (row["total"], row["last"], row[TIMESTAMP]) for name, row in table.items()} == {
        name: (sum(each["number"] for each in rows), rows[-1]["number"], max(each["at"] for each in rows))
        for name, rows in windows.items()
    }
    handed = [row["number"] for context in contexts for _, rows in context.late for row in rows.to_pylist()]
    assert sorted(handed) == [event["number"] for event in late]
    dropped = sum(context.dropped["agg", "null key"] for context in contexts)
    assert dropped == sum(event["key"] is None for event in events)


@pytest.mark.parametrize("number", range(sample_size(6, 400)))
def test_final_windows_are_emitted_once_and_complete(seed: int, number: int) -> None:
    """Whatever the cut, each window that the slowest source partition has left behind is emitted once."""
    random = Random(f"{seed}-{number}")
    window, sources = random_window(random), random.randint(1, 3)
    events = random_events(random, sources)
    ranges = cut(random, len(events))
    batches, contexts = run_chain(
        make_kernels(window, "final"),
        [make_rows(COLUMNS, events[start:end], first_order=start) for start, end in ranges],
        settings=times_by_batch(events, ranges, sources),
    )
    windows, late = model(window, events)
    reached = [max((event["at"] for event in events if event["source"] == each), default=-1) for each in range(sources)]
    expected = sorted(
        (key, start, sum(each["number"] for each in rows), rows[-1]["number"])
        for (key, start), rows in windows.items()
        if start + window.size_ms + window.grace_ms <= min(reached)
    )
    emitted = [summary(row) for batch in batches for row in batch]
    assert sorted(emitted) == expected
    starts = [start for _, start, *_ in emitted]
    assert starts == sorted(starts)
    assert sum(rows.num_rows for context in contexts for _, rows in context.late) == len(late)


def run(
    kernels: list[Kernel], batches: list[tuple[list[Event], dict[str, Any]]], state: State | None = None
) -> tuple[list[list[tuple[Any, ...]]], list[int]]:
    """What each batch of events and settings emits, and how many late rows it has."""
    tables = [make_rows(COLUMNS, events) for events, _ in batches]
    rows, contexts = run_chain(kernels, tables, state, [settings for _, settings in batches])
    late = [sum(rows.num_rows for _, rows in context.late) for context in contexts]
    return [[summary(row) for row in batch] for batch in rows], late


def event(key: str, time: int, stream_time: int | None = None, *, source: int = 0) -> Event:
    """A row whose number is its time."""
    return {"key": key, "number": time, "at": time, "stream_time": stream_time or time, "source": source}


def test_a_row_is_late_once_end_and_grace_have_passed() -> None:
    """At stream time 14 the window from 0 to 10 with a grace of 5 takes rows, at 15 it does not."""
    kernels = make_kernels(tumbling(10, grace=5))
    rows = [event("a", 1), event("a", 14), event("a", 2, 14), event("a", 15), event("a", 3, 15)]
    found, late = run(kernels, [([row], {}) for row in rows])
    assert found == [[("a", 0, 1, 1)], [("a", 10, 14, 14)], [("a", 0, 3, 2)], [("a", 10, 29, 15)], []]
    assert late == [0, 0, 0, 0, 1]


def test_a_row_belongs_to_all_hopping_windows_that_are_open() -> None:
    """No window begins before 0. A row that one of its windows still takes is not late."""
    kernels = make_kernels(hopping(10, 5))
    rows = [event("a", 7), event("a", 16), event("a", 9, 16), event("a", 4, 16)]
    found, late = run(kernels, [([row], {}) for row in rows])
    assert found == [[("a", 0, 7, 7), ("a", 5, 7, 7)], [("a", 10, 16, 16), ("a", 15, 16, 16)], [], []]
    assert late == [0, 0, 1, 1]
    found, late = run(make_kernels(hopping(10, 5)), [([event("a", 12), event("a", 9, 12)], {})])
    assert found == [[("a", 10, 12, 12), ("a", 5, 21, 9)]]
    assert late == [0]


def test_time_alone_closes_windows() -> None:
    """A batch without rows emits what the source partitions' times have closed, once."""
    kernels = make_kernels(tumbling(10), "final")
    passes: list[tuple[list[Event], dict[str, Any]]] = [
        ([event("a", 3)], {}),
        ([], {"source_times": {0: 9}}),
        ([], {"source_times": {0: 10}}),
        ([], {"source_times": {0: 50}}),
    ]
    assert run(kernels, passes)[0] == [[], [], [("a", 0, 3, 3)], []]


def test_the_slowest_source_partition_holds_windows_open() -> None:
    kernels = make_kernels(tumbling(10), "final")
    passes: list[tuple[list[Event], dict[str, Any]]] = [
        ([event("a", 3, source=0)], {"source_times": {0: 3, 1: 0}}),
        ([event("a", 25, source=0)], {}),
        ([event("a", 4, source=1)], {}),
        ([event("a", 12, source=1)], {}),
    ]
    assert run(kernels, passes)[0] == [[], [], [], [("a", 0, 7, 4)]]


@pytest.mark.parametrize("idle_ms", [99, 100])
def test_an_idle_source_partition_holds_up_nobody_for_longer_than_allowed(idle_ms: int) -> None:
    kernels = make_kernels(tumbling(10, close_idle=100), "final")
    passes: list[tuple[list[Event], dict[str, Any]]] = [
        ([event("a", 3, source=0)], {"source_times": {0: 3, 1: 0}}),
        ([event("a", 25, source=0)], {"idle_times": {1: idle_ms}}),
    ]
    assert run(kernels, passes)[0] == [[], [("a", 0, 3, 3)] if idle_ms == 100 else []]


def test_if_all_are_idle_time_goes_on_with_the_wall_clock() -> None:
    """A row at 3 was the last one: its window closes when 7 milliseconds have passed, but not before close_idle."""
    kernels = make_kernels(tumbling(10, close_idle=5), "final")
    passes: list[tuple[list[Event], dict[str, Any]]] = [
        ([event("a", 3)], {}),
        ([], {"idle_times": {0: 6}}),
        ([], {"idle_times": {0: 7}}),
        ([], {"idle_times": {0: 1000}}),
    ]
    assert run(kernels, passes)[0] == [[], [], [("a", 0, 3, 3)], []]
    without = make_kernels(tumbling(10), "final")
    assert run(without, passes)[0] == [[], [], [], []]


def test_a_closed_window_never_changes() -> None:
    """A source partition that was idle comes back with a row for a closed window: it is late."""
    kernels = make_kernels(tumbling(10, close_idle=5), "final")
    state = State()
    passes: list[tuple[list[Event], dict[str, Any]]] = [
        ([event("a", 3)], {}),
        ([], {"idle_times": {0: 20}}),
        ([event("a", 4)], {}),
        ([event("a", 40)], {}),
    ]
    found, late = run(kernels, passes, state)
    assert found == [[], [("a", 0, 3, 3)], [], []]
    assert late == [0, 0, 1, 0]


@pytest.mark.parametrize("emit", ["update", "final"])
def test_windows_are_deleted_after_their_retention(emit: str) -> None:
    """A window from 0 to 10 with a retention of 20 is there until time 30. Its end causes no row."""
    kernels = make_kernels(tumbling(10), emit, retention_ms=20)
    state = State()
    run(kernels, [([event("a", 3)], {}), ([], {"source_times": {0: 29}})], state)
    assert len(state.readers["windows"].values) == 1
    assert run(kernels, [([], {"source_times": {0: 30}})], state) == ([[]], [0])
    assert state.readers["windows"].values == {}
    assert list(state.readers["windows-closing"].values) == [b"\x00"]


def test_a_retention_shorter_than_the_grace_deletes_no_open_window() -> None:
    kernels = make_kernels(tumbling(10, grace=100), retention_ms=20)
    state = State()
    found, _ = run(kernels, [([event("a", 3)], {}), ([event("a", 60)], {}), ([event("a", 4, 60)], {})], state)
    assert found[2] == [("a", 0, 7, 4)]


@pytest.mark.parametrize(("grace", "later"), [(20, 5), (5, 20)])
def test_windows_close_once_if_the_grace_period_changes(grace: int, later: int) -> None:
    """The app is started again with another grace period: no window is left out, and none comes out twice."""
    state = State()
    rows = [event("a", time) for time in range(3, 40, 10)]
    first, _ = run(make_kernels(tumbling(10, grace=grace), "final"), [(rows, {})], state)
    passes: list[tuple[list[Event], dict[str, Any]]] = [([], {"source_times": {0: time}}) for time in (33, 40, 100)]
    then, _ = run(make_kernels(tumbling(10, grace=later), "final"), passes, state)
    assert sorted(row for batch in (*first, *then) for row in batch) == [
        ("a", n, n + 3, n + 3) for n in range(0, 40, 10)
    ]


def test_an_unchanged_time_writes_nothing() -> None:
    kernels = make_kernels(tumbling(10))
    state = State()
    run(kernels, [([event("a", 3)], {})], state)
    _, [context] = run_chain(kernels, [make_rows(COLUMNS, [])], state)
    assert all(not context.store(name).changes for name in STORES)


def test_wide_hopping_windows_are_assigned_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows are assigned at once, the result is the same."""
    events = with_stream_times([event("a", time) for time in range(50)])
    window = hopping(20, 1)
    expected = run(make_kernels(window), [(events, {})])
    monkeypatch.setattr("ottla.streams.kernels.windowed._ASSIGNED_MAX", 60)
    assert run(make_kernels(window), [(events, {})]) == expected
