"""Aggregates and reduces with functions of the user, against a naive model and for every cut of the input."""

from json import loads
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams.errors import FunctionFailed
from ottla.streams.graph import PythonAggregate, Reduce
from ottla.streams.kernels.python_aggregates import PythonAggregateKernel, PythonWindowKernel
from ottla.streams.rows import DELETED, OLD, TIMESTAMP
from ottla.streams.windows import END, START, hopping, tumbling
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
RESULT = pa.schema([("key", pa.string()), ("text", pa.string()), ("count", pa.int64())])
TIME = pa.timestamp("us", "UTC")
WINDOW_KEY = ("key", START, END)
WINDOWED = pa.schema([("key", pa.string()), (START, TIME), (END, TIME), ("text", pa.string()), ("count", pa.int64())])


def add(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any] | None:
    """Appends the word to the text; the word "delete" deletes the value, "fail" raises after it has spoiled it."""
    value["count"] += 1
    value["text"] += row["word"]
    if row["word"] == "fail":
        raise ValueError("no such word")
    return None if row["word"] == "delete" else value


CONCATENATE = PythonAggregate(lambda: {"text": "", "count": 0}, add)


def make_kernel(aggregation: PythonAggregate | Reduce = CONCATENATE) -> PythonAggregateKernel:
    return PythonAggregateKernel("agg", "store", COLUMNS, RESULT, ["key"], aggregation)


def words(*given: str, key: str = "a") -> list[Event]:
    return [{"key": key, "word": word, "at": time} for time, word in enumerate(given)]


@pytest.mark.parametrize("number", range(sample_size(6, 400)))
def test_every_cut_gives_what_the_model_gives(seed: int, number: int) -> None:
    """Rows are added in their order, failing ones leave no trace, and a deleted value begins anew."""
    random = Random(f"{seed}-{number}")
    events: list[Event] = [
        {
            "key": random.choice([None, "a", "b"]),
            "word": random.choice(["x", "y", "z", "delete", "fail"]),
            "at": random.randint(0, 99),
        }
        for _ in range(random.randint(0, 40))
    ]
    state = State()
    ranges = cut(random, len(events))
    batches, contexts = run_chain(
        [make_kernel()],
        [make_rows(COLUMNS, events[start:end], first_order=start) for start, end in ranges],
        state,
        [{"on_error": "skip"}] * len(ranges),
    )
    table: dict[str, tuple[str, int, int]] = {}
    emitted: dict[str, dict[str, Any]] = {}
    for (start, end), changes in zip(ranges, batches, strict=True):
        for event in events[start:end]:
            key, word = event["key"], event["word"]
            if key is None or word == "fail":
                continue
            text, count, time = table.get(key, ("", 0, 0))
            table[key] = (text + word, count + 1, max(time, event["at"]))
            if word == "delete":
                del table[key]
        for change in changes:
            assert change[OLD] == emitted.get(change["key"])
            assert change[DELETED] is (change["key"] not in table)
            if change[DELETED]:
                del emitted[change["key"]]
            else:
                assert (change["text"], change["count"], change[TIMESTAMP]) == table[change["key"]]
                emitted[change["key"]] = {"text": change["text"], "count": change["count"]}
        assert emitted == {key: {"text": text, "count": count} for key, (text, count, _) in table.items()}
    kept = {key.decode(): loads(value) for key, value in state.readers["store"].values.items()}
    assert kept == {key: dict(zip(("text", "count", TIMESTAMP), value, strict=True)) for key, value in table.items()}
    failed = sum(each.rows.num_rows for context in contexts for each in context.failed)
    assert failed == sum(event["word"] == "fail" and event["key"] is not None for event in events)


def test_a_reduce_begins_with_the_first_row_and_sees_the_key() -> None:
    columns = pa.schema([("key", pa.string()), ("word", pa.string())])
    seen = []

    def combine(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        seen.append((left, right))
        return {"key": "ignored", "word": left["word"] + right["word"]}

    kernel = PythonAggregateKernel("agg", "store", COLUMNS, columns, ["key"], Reduce(combine))
    [rows] = run_chain([kernel], [make_rows(COLUMNS, words("x", "y", "z"))])[0]
    assert [(row["key"], row["word"]) for row in rows] == [("a", "xyz")]
    assert seen == [
        ({"key": "a", "word": "x"}, {"key": "a", "word": "y"}),
        ({"key": "a", "word": "xy"}, {"key": "a", "word": "z"}),
    ]


def test_a_failing_function_is_named_with_its_record() -> None:
    with pytest.raises(FunctionFailed, match="agg: offset 1 of in-0: ValueError: no such word"):
        run_chain([make_kernel()], [make_rows(COLUMNS, words("x", "fail"))])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (7, "TypeError: expected a dict with the columns count, text, got 7"),
        ({"text": 1, "count": 1}, "ValueError: column 'text'"),
        ({"total": 1}, "ValueError: unknown column 'total': the columns are count, text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_its_row(wrong: Any, reason: str) -> None:
    """Only that row fails: those before and after it count."""

    def misfit(value: dict[str, Any], row: dict[str, Any]) -> Any:
        return wrong if row["word"] == "wrong" else {"text": value["text"] + row["word"], "count": 0}

    kernel = make_kernel(PythonAggregate(lambda: {"text": "", "count": 0}, misfit))
    batch = make_rows(COLUMNS, words("x", "wrong", "y"))
    [[row]], [context] = run_chain([kernel], [batch], settings=[{"on_error": "skip"}])
    assert row["text"] == "xy"
    [failed] = context.failed
    assert failed.rows.column("word").to_pylist() == ["wrong"]
    assert failed.reasons[0].startswith(reason)


def test_windows_take_rows_of_their_time() -> None:
    """Updates in the order of rows, with the value before; a late row changes nothing."""
    kernel = PythonWindowKernel("agg", "store", COLUMNS, WINDOWED, WINDOW_KEY, hopping(10, 5), CONCATENATE)
    events: list[Event] = [
        {"key": "a", "word": "x", "at": 7},
        {"key": "a", "word": "y", "at": 11, "stream_time": 11},
        {"key": "a", "word": "z", "at": 3, "stream_time": 11},
    ]
    batches, contexts = run_chain([kernel], [make_rows(COLUMNS, [event]) for event in events])
    found = [[(row[START].microsecond // 1000, row["text"], row[OLD]) for row in batch] for batch in batches]
    assert found == [
        [(0, "x", None), (5, "x", None)],
        [(5, "xy", {"text": "x", "count": 1}), (10, "y", None)],
        [],
    ]
    assert [rows.column("word").to_pylist() for _, rows in contexts[2].late] == [["z"]]


@pytest.mark.parametrize("number", range(sample_size(6, 300)))
def test_final_windows_are_complete(seed: int, number: int) -> None:
    """Whatever the cut, each closed window is emitted once, with the rows that came in time, in their order."""
    random = Random(f"{seed}-{number}")
    window = tumbling(random.randint(1, 9), grace=random.choice([0, 4]))
    events = with_stream_times(
        [
            {"key": random.choice("ab"), "word": random.choice("xyz"), "at": place + random.randint(0, 9)}
            for place in range(random.randint(0, 40))
        ]
    )
    ranges = cut(random, len(events))
    kernel = PythonWindowKernel("agg", "store", COLUMNS, WINDOWED, WINDOW_KEY, window, CONCATENATE, emit="final")
    batches, _ = run_chain(
        [kernel],
        [make_rows(COLUMNS, events[start:end], first_order=start) for start, end in ranges],
        settings=times_by_batch(events, ranges, 1),
    )
    texts: dict[tuple[str, int], str] = {}
    for event in events:
        start = event["at"] - event["at"] % window.size_ms
        if start + window.size_ms + window.grace_ms > event["stream_time"]:
            texts[event["key"], start] = texts.get((event["key"], start), "") + event["word"]
    reached = max((event["at"] for event in events), default=-1)
    found = [(row["key"], row[START].microsecond // 1000, row["text"]) for batch in batches for row in batch]
    assert sorted(found) == sorted(
        (key, start, text)
        for (key, start), text in texts.items()
        if start + window.size_ms + window.grace_ms <= reached
    )


def test_a_window_that_a_function_deletes_is_gone() -> None:
    """It is neither emitted when it closes nor left behind in the closing store."""
    kernel = PythonWindowKernel("agg", "store", COLUMNS, WINDOWED, WINDOW_KEY, tumbling(10), CONCATENATE, emit="final")
    state = State()
    events = words("x", "delete")
    batches, _ = run_chain([kernel], [make_rows(COLUMNS, [event]) for event in events], state)
    late, _ = run_chain([kernel], [make_rows(COLUMNS, [])], state, [{"source_times": {0: 99}}])
    assert [*batches, *late] == [[], [], []]
    assert state.readers["store"].values == {}
    assert list(state.readers["store-closing"].values) == [b"\x00"]


def test_a_closed_window_never_changes() -> None:
    """A source partition that was idle comes back with a row for a closed window: it is late."""
    window = tumbling(10, close_idle=5)
    kernel = PythonWindowKernel("agg", "store", COLUMNS, WINDOWED, WINDOW_KEY, window, CONCATENATE, emit="final")
    batches, contexts = run_chain(
        [kernel],
        [make_rows(COLUMNS, rows) for rows in (words("x"), [], words("y"), [])],
        settings=[{}, {"idle_times": {0: 20}}, {}, {"source_times": {0: 99}}],
    )
    assert [[row["text"] for row in batch] for batch in batches] == [[], ["x"], [], []]
    assert [rows.column("word").to_pylist() for _, rows in contexts[2].late] == [["y"]]
