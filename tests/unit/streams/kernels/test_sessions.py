"""Session windows against a naive model, for every cut of the input and several source partitions."""

from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams.errors import FunctionFailed
from ottla.streams.graph import Aggregation, BuiltInAggregate, PythonAggregate, Reduce
from ottla.streams.kernels.sessions import SessionKernel
from ottla.streams.rows import DELETED, OLD, TIMESTAMP
from ottla.streams.windows import END, START, Window, session
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

COLUMNS = pa.schema([("key", pa.string()), ("word", pa.string())])
TIME = pa.timestamp("us", "UTC")
KEY = ("key", START, END)
NAMES = ("count", "first", "words")
RESULT = pa.schema(
    [
        ("key", pa.string()),
        (START, TIME),
        (END, TIME),
        ("count", pa.int64()),
        ("first", pa.string()),
        ("words", pa.list_(pa.string())),
    ]
)
BUILT_IN = (
    BuiltInAggregate("count", None, "count"),
    BuiltInAggregate("first", "word", "first", pa.string()),
    BuiltInAggregate("collect_list", "word", "words", pa.list_(pa.string())),
)


def add(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any] | None:
    """Adds in place; "fail" fails after that, "delete" deletes the session."""
    value["count"] += 1
    value["first"] = value["first"] or row["word"]
    value["words"].append(row["word"])
    if row["word"] == "fail":
        raise ValueError("no such word")
    return None if row["word"] == "delete" else value


def merge(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    words = left["words"] + right["words"]
    return {"count": left["count"] + right["count"], "first": left["first"], "words": words}


IN_PYTHON = PythonAggregate(lambda: {"count": 0, "first": None, "words": []}, add, merge=merge)


def make_kernel(
    window: Window, aggregation: Aggregation, emit: str = "update", retention_ms: int = 10**6
) -> SessionKernel:
    return SessionKernel(
        "agg", "sessions", COLUMNS, RESULT, KEY, window, aggregation, emit=emit, retention_ms=retention_ms
    )


@dataclass
class Model:
    """Sessions one row at a time, by Kafka's rules. With `is_final`, a row sees no sessions that its time closes."""

    window: Window
    is_final: bool = False

    def __post_init__(self) -> None:
        self.sessions: dict[str, list[tuple[int, int, list[str]]]] = {}
        self.late: list[Event] = []
        self.failed = 0

    def add(self, event: Event) -> None:
        key, time, gap = event["key"], event["at"], self.window.size_ms
        if key is None:
            return
        closed_before = event["stream_time"] - gap - self.window.grace_ms
        mine = self.sessions.setdefault(key, [])
        ends_from = max(time - gap, closed_before) if self.is_final else time - gap
        near = sorted(
            (each for each in mine if each[1] >= ends_from and each[0] <= time + gap), key=lambda each: each[1::-1]
        )
        start, end = min([time, *(each[0] for each in near)]), max([time, *(each[1] for each in near)])
        if end < closed_before:
            self.late.append(event)
        elif event["word"] == "fail":
            self.failed += 1
        else:
            mine[:] = [each for each in mine if each not in near]
            if event["word"] != "delete":
                mine.append((start, end, [word for each in near for word in each[2]] + [event["word"]]))

    def table(self) -> dict[tuple[str, int, int], list[str]]:
        return {(key, start, end): words for key, mine in self.sessions.items() for start, end, words in mine}


def random_events(random: Random, sources: int, words: list[str]) -> list[Event]:
    """Rows that drift forward, out of order and with pauses, a partition at its own speed."""
    places = [0] * sources
    events: list[Event] = []
    for _ in range(random.randint(0, 60)):
        source = random.randrange(sources)
        places[source] += random.choice([0, 1, 2, 4, 15])
        time = max(0, places[source] - random.choice([0, 0, 1, 5, 20]))
        word = random.choice(words)
        events.append({"key": random.choice([None, "a", "b", "\x00"]), "word": word, "at": time, "source": source})
    return with_stream_times(events)


def bounds(row: Event) -> tuple[str, int, int]:
    start, end = (round(row[name].timestamp() * 1000) for name in (START, END))
    return row["key"], start, end


@pytest.mark.parametrize("number", range(sample_size(6, 600)))
@pytest.mark.parametrize("aggregation", [BUILT_IN, IN_PYTHON], ids=["built-in", "python"])
def test_updates_and_deletions_follow_the_model(seed: int, number: int, aggregation: Aggregation) -> None:
    """After each batch the changes so far make the table of the model, and each knows what it replaces."""
    random = Random(f"{seed}-{number}")
    window = session(random.randint(1, 6), grace=random.choice([0, 3, 30]))
    words = ["x", "y", "z"] if aggregation is BUILT_IN else ["x", "y", "z", "delete", "fail"]
    events = random_events(random, random.randint(1, 2), words)
    ranges = cut(random, len(events))
    batches, contexts = run_chain(
        [make_kernel(window, aggregation)],
        [make_rows(COLUMNS, events[start:end], first_order=start) for start, end in ranges],
        settings=[each | {"on_error": "skip"} for each in times_by_batch(events, ranges, 2)],
    )
    model = Model(window)
    table: dict[tuple[str, int, int], dict[str, Any]] = {}
    for (start, end), changes in zip(ranges, batches, strict=True):
        for event in events[start:end]:
            model.add(event)
        assert len({bounds(change) for change in changes}) == len(changes)
        for change in changes:
            name = bounds(change)
            assert change[OLD] == table.pop(name, None)
            assert change[TIMESTAMP] == name[2]
            if change[DELETED]:
                assert change[OLD] is not None
            else:
                table[name] = {each: change[each] for each in NAMES}
        assert table == {
            name: {"count": len(words), "first": words[0], "words": words} for name, words in model.table().items()
        }
    late = [row["word"] for context in contexts for _, rows in context.late for row in rows.to_pylist()]
    assert late == [event["word"] for event in model.late]
    assert sum(each.rows.num_rows for context in contexts for each in context.failed) == model.failed


def test_a_session_that_is_deleted_and_made_again_in_one_batch_is_one_change() -> None:
    words = [["x"], ["delete", "y"]]
    events = [[{"key": "a", "word": word, "at": 4, "source": 0} for word in each] for each in words]
    batches, _ = run_chain(
        [make_kernel(session(5), IN_PYTHON)], [make_rows(COLUMNS, with_stream_times(each)) for each in events]
    )
    (change,) = batches[1]
    assert (change[OLD]["words"], change["words"], change[DELETED]) == (["x"], ["y"], False)


@pytest.mark.parametrize("number", range(sample_size(6, 600)))
@pytest.mark.parametrize("aggregation", [BUILT_IN, IN_PYTHON], ids=["built-in", "python"])
def test_final_sessions_are_emitted_once(seed: int, number: int, aggregation: Aggregation) -> None:
    """Whatever the cut, a session is emitted once all source partitions have passed its end, the gap and the grace."""
    random = Random(f"{seed}-{number}")
    window, sources = session(random.randint(1, 6), grace=random.choice([0, 3, 30])), random.randint(1, 2)
    events = random_events(random, sources, ["x", "y", "z"])
    ranges = cut(random, len(events))
    batches, contexts = run_chain(
        [make_kernel(window, aggregation, "final")],
        [make_rows(COLUMNS, events[start:end], first_order=start) for start, end in ranges],
        settings=times_by_batch(events, ranges, sources),
    )
    model = Model(window, is_final=True)
    for event in events:
        model.add(event)
    reached = [max((event["at"] for event in events if event["source"] == each), default=-1) for each in range(sources)]
    closed_before = min(reached) - window.size_ms - window.grace_ms
    expected = sorted((*name, words) for name, words in model.table().items() if name[2] < closed_before)
    emitted = [(*bounds(row), row["words"]) for batch in batches for row in batch]
    assert sorted(emitted) == expected
    ends = [end for _, _, end, _ in emitted]
    assert ends == sorted(ends)
    assert sum(rows.num_rows for context in contexts for _, rows in context.late) == len(model.late)


def event(time: int, word: str = "x", stream_time: int | None = None) -> Event:
    return {"key": "a", "word": word, "at": time, "stream_time": time if stream_time is None else stream_time}


def run(kernel: SessionKernel, batches: list[list[Event]], state: State | None = None) -> list[list[tuple[Any, ...]]]:
    """Start, end and number of rows of what each batch emits; None for a deleted session."""
    rows, _ = run_chain([kernel], [make_rows(COLUMNS, batch) for batch in batches], state)
    return [[(*bounds(row)[1:], None if row[DELETED] else row["count"]) for row in batch] for batch in rows]


@pytest.mark.parametrize("aggregation", [BUILT_IN, IN_PYTHON], ids=["built-in", "python"])
def test_a_row_between_two_sessions_makes_one_of_them(aggregation: Aggregation) -> None:
    """Rows exactly a gap apart belong together. The sessions that are gone are deleted before the new one appears."""
    kernel = make_kernel(session(10, grace=100), aggregation)
    assert run(kernel, [[event(0)], [event(20, "y")], [event(10, "z", 20)], [event(5, "w", 20)]]) == [
        [(0, 0, 1)],
        [(20, 20, 1)],
        [(0, 0, None), (20, 20, None), (0, 20, 3)],
        [(0, 20, 4)],
    ]


def test_what_begins_and_ends_within_a_batch_is_not_seen() -> None:
    kernel = make_kernel(session(10, grace=100), BUILT_IN)
    assert run(kernel, [[event(0), event(20), event(10, "z", 20)]]) == [[(0, 20, 3)]]


def test_an_old_row_is_late_unless_its_session_goes_on() -> None:
    """At stream time 30 with a gap of 10, a row at 9 lies at the edge of a session that goes on, and a row at 19 is
    alone."""
    kernel = make_kernel(session(10), BUILT_IN)
    batches = [[event(12)], [event(20)], [event(30)], [event(9, "y", 30)]]
    assert run(kernel, batches)[3] == [(12, 30, None), (9, 30, 4)]
    alone = [[event(30)], [event(19, "y", 30)], [event(20, "z", 30)]]
    assert run(make_kernel(session(10), BUILT_IN), alone)[1:] == [[], [(30, 30, None), (20, 30, 2)]]


def test_a_closed_session_stays_as_it_was_emitted() -> None:
    """At stream time 31 the session at 20 is emitted. A row at 21 is not late, but belongs to the session after it."""
    kernel = make_kernel(session(10), BUILT_IN, "final")
    batches = [[event(20)], [event(31, "y")], [event(21, "z", 31)], [event(99)]]
    found = run(kernel, batches)
    assert found[:2] == [[], [(20, 20, 1)]]
    assert found[2:] == [[], [(21, 31, 2)]]
    assert run(make_kernel(session(10), BUILT_IN, "final"), [[each for batch in batches for each in batch]]) == [
        [(20, 20, 1), (21, 31, 2)]
    ]


def test_sessions_are_deleted_after_their_retention() -> None:
    """Nothing is emitted for that, and nothing is left of them in either store."""
    kernel = make_kernel(session(10), BUILT_IN, retention_ms=50)
    state = State()
    run(kernel, [[event(0)], [event(20)]], state)
    assert run_chain([kernel], [make_rows(COLUMNS, [])], state, [{"source_times": {0: 69}}])[0] == [[]]
    assert len(state.readers["sessions"].values) == 1
    assert run_chain([kernel], [make_rows(COLUMNS, [])], state, [{"source_times": {0: 70}}])[0] == [[]]
    assert state.readers["sessions"].values == {}
    assert list(state.readers["sessions-closing"].values) == [b"\x00"]


def test_a_reduce_joins_sessions_by_its_function() -> None:
    result = pa.schema([RESULT.field(0), RESULT.field(1), RESULT.field(2), ("word", pa.string())])

    def combine(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        assert left["key"] == right["key"] == "a"
        return {**left, "word": left["word"] + right["word"]}

    kernel = SessionKernel("agg", "sessions", COLUMNS, result, KEY, session(10, grace=99), Reduce(combine))
    batches = [[event(20, "2", 20)], [event(0, "0", 20)], [event(10, "1", 20)]]
    rows, _ = run_chain([kernel], [make_rows(COLUMNS, batch) for batch in batches])
    assert [row["word"] for row in rows[2]] == [None, None, "021"]


def test_a_failing_function_is_named_with_its_record() -> None:
    kernel = make_kernel(session(10), IN_PYTHON)
    with pytest.raises(FunctionFailed, match="agg: offset 1 of in-0: ValueError: no such word"):
        run(kernel, [[event(0), event(1, "fail")]])


@pytest.mark.parametrize("aggregation", [BUILT_IN, IN_PYTHON], ids=["built-in", "python"])
def test_time_that_went_on_without_rows_closes_sessions_for_good(aggregation: Aggregation) -> None:
    """A source partition that was idle comes back with an old row: it is late, even if its own time says otherwise."""
    kernel = make_kernel(session(10, close_idle=5), aggregation, "final")
    batches, contexts = run_chain(
        [kernel],
        [make_rows(COLUMNS, rows) for rows in ([event(0)], [], [event(1, "y")], [])],
        settings=[{}, {"idle_times": {0: 50}}, {}, {"source_times": {0: 99}}],
    )
    assert [[(*bounds(row)[1:], row["words"]) for row in batch] for batch in batches] == [[], [(0, 0, ["x"])], [], []]
    assert [rows.column("word").to_pylist() for _, rows in contexts[2].late] == [["y"]]


@pytest.mark.parametrize("aggregation", [BUILT_IN, IN_PYTHON], ids=["built-in", "python"])
def test_a_row_behind_another_one_is_judged_by_its_own_time(aggregation: Aggregation) -> None:
    """Rows of a key are near each other and come in one batch, but time has gone on between them, by other keys: the
    second one is late, or with "final" begins a session because the first one's is closed."""
    _, contexts = run_chain(
        [make_kernel(session(10), aggregation)], [make_rows(COLUMNS, [event(0), event(5, "y", 99)])]
    )
    assert [rows.column("word").to_pylist() for _, rows in contexts[0].late] == [["y"]]
    rows = [[event(0), event(1), event(5, "y", 12), event(6, "z", 12)], [event(99)]]
    batches, _ = run_chain(
        [make_kernel(session(10), aggregation, "final")], [make_rows(COLUMNS, each) for each in rows]
    )
    assert [(*bounds(row)[1:], row["words"]) for batch in batches for row in batch] == [
        (0, 1, ["x", "x"]),
        (5, 6, ["y", "z"]),
    ]
