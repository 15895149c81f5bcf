"""Processors: state, timers, TTL and outputs against a model, for every cut of the input."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams.errors import FunctionFailed, StreamsError, TopologyError
from ottla.streams.kernels import key_state
from ottla.streams.kernels.kernel import KernelContext
from ottla.streams.kernels.processing import ProcessKernel
from ottla.streams.processors import Context, Emit, MapState, Processor, Timer, ValueState, state_columns
from ottla.streams.rows import HEADERS, OFFSET, ORDER, STREAM_TIME, TIMESTAMP
from tests.unit.streams.kernels.harness import Event, State, cut, make_rows

COLUMNS = pa.schema([("card", pa.string()), ("amount", pa.int64())])
RESULT = pa.schema([("card", pa.string()), ("what", pa.string()), ("total", pa.int64())])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


class Totals(Processor):
    """Uses everything: a value that is forgotten after 20 ms, maps, a timer that is moved or cancelled."""

    total = ValueState("long", ttl=20)
    seen = MapState("long", "long")
    recent = MapState("string", "a long", ttl=15)

    def process(self, row: dict[str, Any], context: Context) -> Iterator[Any]:
        amount = row["amount"]
        self.total.value = (self.total.value or 0) + amount
        self.seen[amount] = self.seen.get(amount, 0) + 1
        self.recent[str(amount)] = {"a": amount}
        context.timer("flush", context.timestamp + timedelta(milliseconds=10))
        context.timer("once", 30)
        if amount == 3:
            context.cancel("flush")
        yield {"what": "row", "total": self.total.value}
        yield "seen", {"what": str(sorted(self.seen.items())), "total": sum(each["a"] for each in self.recent.values())}

    def on_timer(self, timer: Timer, context: Context) -> Iterator[Any]:
        assert context.timestamp == timer.time
        yield {"what": timer.name, "total": self.total.value}
        if timer.name == "flush":
            self.seen.clear()
            context.timer("again", timer.time + timedelta(milliseconds=4))


def make_kernel(processor: type) -> ProcessKernel:
    return ProcessKernel("process-1", "totals", processor, COLUMNS, ["card"], RESULT, {"seen": RESULT})


def run_batch(
    kernel: ProcessKernel, events: list[Event], state: State, *, first_order: int, **settings: Any
) -> tuple[list[tuple[Any, ...]], list[Event], KernelContext]:
    """What came out (number of the output, key, what, total, time, order), whole rows, the context."""
    context = state.context([spec.name for spec in kernel.stores], **settings)
    outputs = kernel.process([make_rows(COLUMNS, events, first_order=first_order)], context)
    state.commit(context)
    rows, found = [], []
    for number, output in enumerate(outputs):
        assert output.column(ORDER).to_pylist() == sorted(output.column(ORDER).to_pylist())
        for row in output.to_pylist():
            rows.append(row)
            found.append((number, row["card"], row["what"], row["total"], row[TIMESTAMP], row[ORDER]))
    return found, rows, context


def run(
    events: list[Event], random: Random | None, processor: type = Totals, **settings: Any
) -> tuple[list[tuple[Any, ...]], list[Event], State, list[KernelContext]]:
    """All that `run_batch` returns for each batch, and the state in the end."""
    kernel, state = make_kernel(processor), State()
    found: list[tuple[Any, ...]] = []
    rows: list[Event] = []
    contexts = []
    for start, end in cut(random, len(events)):
        made, whole, context = run_batch(kernel, events[start:end], state, first_order=start, **settings)
        found += made
        rows += whole
        contexts.append(context)
    return found, rows, state, contexts


def model(events: list[Event]) -> list[tuple[Any, ...]]:
    """The same as Totals does, with plain dictionaries, one event after the other."""
    keys: dict[str, dict[str, Any]] = {}
    timers: dict[tuple[str, str], int] = {}
    reached: dict[int, int] = {}
    found = []
    for order, event in enumerate(events):
        reached[event["source"]] = event["stream_time"]
        closed = min(reached.values())

        def fire(closed: int = closed, order: int = order) -> None:
            while due := sorted((when, *who) for who, when in timers.items() if when <= closed):
                when, card, name = due[0]
                del timers[card, name]
                total, written = keys[card]["total"]
                found.append((0, card, name, total if closed < written + 20 else None, when, order))
                if name == "flush":
                    keys[card]["seen"] = {}
                    timers[card, "again"] = when + 4

        fire()
        now, card, amount, at = event["stream_time"], event["card"], event["amount"], event["at"]
        if card is None:
            continue
        state = keys.setdefault(card, {"total": (0, 0), "seen": {}, "recent": {}})
        total, written = state["total"]
        total = (total if now < written + 20 else 0) + amount
        state["total"] = (total, now)
        state["seen"][amount] = state["seen"].get(amount, 0) + 1
        state["recent"][amount] = now
        timers[card, "flush"] = at + 10
        timers[card, "once"] = 30
        if amount == 3:
            del timers[card, "flush"]
        found.append((0, card, "row", total, at, order))
        recent = sum(each for each, time in state["recent"].items() if now < time + 15)
        found.append((1, card, str(sorted(state["seen"].items())), recent, at, order))
        fire()
    return found


def random_events(random: Random) -> list[Event]:
    events: list[Event] = []
    times: dict[int, int] = {0: 0, 1: 0}
    for place in range(random.randint(2, 40)):
        source = place if place < 2 else random.randint(0, 1)
        at = 0 if place < 2 else max(0, place * 2 - random.choice([0, 0, 9]))
        times[source] = max(times[source], at)
        event: Event = {"card": random.choice(["a", "b", "\x00\x01", None]), "amount": random.randint(0, 3), "at": at}
        events.append({**event, "source": source, "stream_time": times[source]})
    return events


def test_state_and_timers_are_those_of_the_model_for_every_cut(seed: int) -> None:
    # Out of order, with two source partitions that are both heard of in the first batch.
    random = Random(seed)
    for _ in range(30):
        events = random_events(random)
        kernel = make_kernel(Totals)
        state = State()
        found: list[tuple[Any, ...]] = []
        for first, last in [(0, 2), *((2 + a, 2 + b) for a, b in cut(random, len(events) - 2))]:
            found += run_batch(kernel, events[first:last], state, first_order=first)[0]
        assert sorted(found, key=by_place) == sorted(model(events), key=by_place)


def by_place(found: tuple[Any, ...]) -> tuple[int, int]:
    return found[5], found[0]


def event(at: int, amount: int = 1, card: str | None = "a", **more: Any) -> Event:
    return {"card": card, "amount": amount, "at": at, "stream_time": at, "source": 0, **more}


def test_forgotten_state_leaves_the_store() -> None:
    class Short(Processor):
        last = ValueState("long", ttl="1 second")
        all = MapState("long", "string", ttl="1 second")

        def process(self, row: dict[str, Any], context: Context) -> None:
            if row["amount"]:
                self.last.value = row["amount"]
                self.all[row["amount"]] = "x"

    _, _, state, _ = run([event(0), event(900, 2), event(950, card="b"), event(1899, 0, "c")], None, Short)
    assert set(state.readers["totals"].values) == {b"a", b"b"}
    content = b'{"last":2,"all":[[2,"x"]],"_times":{"last":900,"all":[900]},"_cleanup":1900}'
    assert state.readers["totals"].values[b"a"] == content
    _, _, state, _ = run([event(0), event(900, 2), event(950, card="b"), event(1950, 0, "c")], None, Short)
    assert state.readers["totals"].values == {}
    assert len(state.readers["totals-timers"].values) == 1  # the stream times


def test_what_the_context_tells() -> None:
    seen: list[Any] = []

    class Curious(Processor):
        def process(self, row: dict[str, Any], context: Context) -> list[Any]:
            seen.append((context.key, context.timestamp, context.stream_time, context.headers))
            seen.append((context.topic, context.partition, context.offset))
            context.timer("t", moment(8))
            new = [("new", b"2")]
            return [Emit({"what": "x"}, timestamp=moment(99), headers=new), Emit({"what": "y"}, "seen"), {"what": "z"}]

        def on_timer(self, timer: Timer, context: Context) -> None:
            seen.append((context.key, context.timestamp, context.stream_time, context.headers, context.topic))

    headers = [{"key": "h", "value": b"1"}]
    _, rows, _, _ = run([event(5, stream_time=7, headers=headers), event(9)], Random(3), Curious)
    assert seen[:2] == [("a", moment(5), moment(7), [("h", b"1")]), ("in", 0, 0)]
    assert seen[2] == ("a", moment(8), moment(9), [], None)
    found = {row["what"]: (row[TIMESTAMP], row[HEADERS], row[OFFSET]) for row in rows if row[ORDER] == 0}
    assert found["x"] == (99, [{"key": "new", "value": b"2"}], 0)
    assert found["y"] == found["z"] == (5, headers, 0)


def test_rows_of_timers_have_no_record() -> None:
    _, rows, _, _ = run([event(0), event(20, 1, "b")], None)
    (row,) = [row for row in rows if row["what"] == "flush"]
    assert (row[TIMESTAMP], row[STREAM_TIME], row[OFFSET], row[ORDER]) == (10, 20, None, 1)


class Failing(Processor):
    """Fails in several ways after it has changed its state, set a timer and yielded a row."""

    count = ValueState("long")

    def process(self, row: dict[str, Any], context: Context) -> Iterator[Any]:
        self.count.value = (self.count.value or 0) + 1
        context.timer("t", 100)
        yield {"what": "x", "total": self.count.value}
        if row["amount"] == 1:
            raise KeyError("lost")
        if row["amount"] == 2:
            self.count.value = "x"
        if row["amount"] == 3:
            yield {"what": 7}
        if row["amount"] == 4:
            yield "elsewhere", {"what": "x"}
        if row["amount"] == 5:
            yield {"color": "x"}
        if row["amount"] == 6:
            context.timer("", 100)

    def on_timer(self, timer: Timer, context: Context) -> None:
        context.timer("t", timer.time)


@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        (1, "KeyError: 'lost'"),
        (2, "state 'count'"),
        (3, "column 'what'"),
        (4, "unknown output 'elsewhere': there are 'seen'"),
        (5, "unknown column 'color'"),
        (6, "a name is a text"),
    ],
)
def test_nothing_of_a_failing_row_is_kept(amount: int, reason: str) -> None:
    events = [event(0, 0), event(1, amount), event(2, amount, "b"), event(3, 0)]
    found, _, state, contexts = run(events, Random(1), Failing, on_error="skip")
    assert [(each[1], each[3], each[5]) for each in found] == [("a", 1, 0), ("a", 2, 3)]
    failed = [each for context in contexts for each in context.failed]
    assert [each.rows.column("card").to_pylist() for each in failed] == [["a"], ["b"]]
    assert reason in failed[0].reasons[0]
    assert state.readers["totals"].values == {b"a": b'{"count":2,"_timers":{"t":100}}'}
    with pytest.raises(FunctionFailed, match="process-1: offset 1 of in-0: "):
        run(events, None, Failing)


def test_a_failing_timer_is_handed_over_and_does_not_fire_again() -> None:
    events = [event(0, 0), event(100, 0, "b"), event(200, 0, "b")]
    _, _, state, contexts = run(events, None, Failing, on_error="skip")
    failed = [each for context in contexts for each in context.failed]
    assert [each.rows.to_pylist()[0]["card"] for each in failed] == ["a", "b", "b"]
    assert "is not after the timer that fires" in failed[0].reasons[0]
    assert b"_timers" not in state.readers["totals"].values[b"a"]
    with pytest.raises(FunctionFailed, match="process-1: timer 't' of key 'a': ValueError"):
        run(events, None, Failing)


def test_state_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_state, "STATE_BYTES_MAX", 20)
    with pytest.raises(StreamsError, match="the state of key b'a' has"):
        run([event(0)], None)


def test_declarations_are_checked() -> None:
    with pytest.raises(TopologyError, match="ValueState: "):
        ValueState("nothing such")
    with pytest.raises(TopologyError, match="MapState: keys cannot be struct"):
        MapState("a long", "long")
    with pytest.raises(ValueError, match="ValueState: ttl: 'soon' is not a duration"):
        ValueState("long", ttl="soon")
    assert state_columns(Totals).field("total").type == pa.int64()
    assert state_columns(Totals).field("seen").type == pa.map_(pa.int64(), pa.int64())
