"""Stream-stream joins against models, for every cut and order of the input."""

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams import graph
from ottla.streams.kernels import buckets
from ottla.streams.kernels.joining import JoinShape
from ottla.streams.kernels.stream_joins import JoinWindow, StreamJoinKernel
from ottla.streams.rows import OFFSET, ORDER, SOURCE, TIMESTAMP
from tests.samples import sample_size
from tests.unit.streams.kernels.harness import Event, State, cut, make_rows

LEFT = pa.schema([("key", pa.string()), ("name", pa.string())])
RIGHT = pa.schema([("id", pa.string()), ("city", pa.string()), ("age", pa.int64())])
RESULT = pa.schema([("key", pa.string()), ("name", pa.string()), ("city", pa.string()), ("age", pa.int64())])


def shape_of(how: str) -> JoinShape:
    left, right = graph.Node("left", (), LEFT, ("key",)), graph.Node("right", (), RIGHT, ("id",))
    node = graph.StreamJoin(
        "join-1",
        (left, right),
        RESULT,
        ("key",),
        how=how,
        left_columns={"key": "key", "name": "name"},
        right_columns={"city": "city", "age": "age"},
    )
    return JoinShape.of(node)


def random_events(random: Random, *, is_ordered: bool, sources: int) -> list[Event]:
    """Rows of both sides. Each source partition has rows of one side, and its own stream time."""
    events: list[Event] = []
    stream_times: dict[int, int] = {}
    for place in range(random.randint(0, 40)):
        side, partition = random.randint(0, 1), random.randrange(sources)
        source = 0 if is_ordered else 2 * partition + side
        at = max(0, place * 2 - (0 if is_ordered else random.choice([0, 0, 3, 12])))
        stream_times[source] = max(stream_times.get(source, 0), at)
        key = random.choice([None, "a", "b"]) if random.random() < 0.2 else random.choice(["a", "\x00"])
        event: Event = {"side": side, "at": at, "stream_time": stream_times[source], "source": source, ORDER: place}
        event |= {"key": key, "id": key, "name": random.choice([None, "x", "y"]), "age": random.randint(0, 1)}
        event["city"] = "c" if random.random() < 0.9 else None
        if event["city"] is None:
            event["age"] = None
        events.append(event)
    return events


class Run:
    """A join over all batches of the events."""

    def __init__(self, how: str, window: JoinWindow) -> None:
        self.kernel = StreamJoinKernel("join-1", "join", shape_of(how), window)
        self.state = State()
        self.found: list[Event] = []
        self.late = 0
        self.dropped = 0

    def feed(self, events: list[Event], random: Random | None) -> list[Event]:
        for start, end in cut(random, len(events)):
            self.process(events[start:end])
        return self.found

    def process(self, events: list[Event], **settings: Any) -> list[Event]:
        context = self.state.context([spec.name for spec in self.kernel.stores], **settings)
        sides = [[event for event in events if event["side"] == side] for side in (0, 1)]
        (output,) = self.kernel.process([make_rows(LEFT, sides[0]), make_rows(RIGHT, sides[1])], context)
        assert output.column(ORDER).to_pylist() == sorted(output.column(ORDER).to_pylist())
        self.state.commit(context)
        self.late += sum(rows.num_rows for _, rows in context.late)
        self.dropped += sum(context.dropped.values())
        self.found += output.to_pylist()
        return list(output.to_pylist())


def simplify(row: Event) -> tuple[Any, ...]:
    return row["key"], row["name"], row["city"], row["age"], row[TIMESTAMP]


def is_dropped(event: Event, how: str) -> bool:
    if event["side"] == 0:
        return event["name"] is None or (event["key"] is None and how == "inner")
    return event["city"] is None or event["key"] is None


def is_late(event: Event, window: JoinWindow) -> bool:
    reach = window.before_ms if event["side"] else window.after_ms
    return bool(event["at"] + reach + window.grace_ms < event["stream_time"])


def model(how: str, events: list[Event], window: JoinWindow) -> Counter[tuple[Any, ...]]:
    """The result as a set of rows: it does not depend on the order of the streams."""
    taking_part = [event for event in events if not is_dropped(event, how) and not is_late(event, window)]
    lefts, rights = ([event for event in taking_part if event["side"] == side] for side in (0, 1))
    reached: dict[int, int] = {}
    for event in events:
        reached[event["source"]] = event["stream_time"]
    closed = min(reached.values(), default=-1)
    found: Counter[tuple[Any, ...]] = Counter()
    for left in lefts:
        end = left["at"] + window.after_ms + window.grace_ms
        matches = [
            right
            for right in rights
            if right["key"] == left["key"]
            and left["at"] - window.before_ms <= right["at"] <= left["at"] + window.after_ms
        ]
        if how == "left":
            matches = [right for right in matches if right["stream_time"] <= end]
        for right in matches:
            found[left["key"], left["name"], right["city"], right["age"], max(left["at"], right["at"])] += 1
        if how == "left" and not matches and (end < closed or left["key"] is None):
            found[left["key"], left["name"], None, None, left["at"]] += 1
    return found


def kafka(how: str, events: list[Event], window: JoinWindow) -> list[tuple[Any, ...]]:
    """KStreamKStreamJoin row by row, for rows that come in the order of their times. Here a row moves the time before
    it may be ignored; Kafka Streams looks at its outer store only when a row takes part."""
    stores: list[list[Event]] = [[], []]
    outer: list[Event] = []
    found: list[tuple[Any, ...]] = []
    stream_time = 0
    for event in events:
        side, at = event["side"], event["at"]
        stream_time = max(stream_time, at)
        for waiting in sorted(outer, key=lambda each: (each["at"], each["key"])):
            if waiting["at"] + window.after_ms + window.grace_ms < stream_time:
                found.append((waiting["key"], waiting["name"], None, None, waiting["at"]))
                outer = [each for each in outer if each is not waiting]
        if how == "left" and side == 0 and event["key"] is None and event["name"] is not None:
            found.append((None, event["name"], None, None, at))
            continue
        if is_dropped(event, how):
            continue
        before, after = (window.before_ms, window.after_ms)[:: -1 if side else 1]
        matches = [
            each for each in stores[1 - side] if each["key"] == event["key"] and at - before <= each["at"] <= at + after
        ]
        for match in sorted(matches, key=lambda each: each["at"]):
            left, right = (event, match) if side == 0 else (match, event)
            found.append((left["key"], left["name"], right["city"], right["age"], max(at, match["at"])))
            outer = [each for each in outer if each is not match]
        stores[side].append(event)
        if how == "left" and side == 0 and not matches:
            outer.append(event)
    return found


def random_window(random: Random) -> JoinWindow:
    return JoinWindow(random.choice([0, 3, 10]), random.choice([0, 4, 9]), random.choice([0, 2, 20]))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_in_order_every_row_is_the_one_of_kafka_streams(how: str, seed: int) -> None:
    random = Random(seed)
    for number in range(sample_size(8, 100)):
        events, window = random_events(random, is_ordered=True, sources=1), random_window(random)
        found = Run(how, window).feed(events, random if number % 2 else None)
        assert list(map(simplify, found)) == kafka(how, events, window)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_result_does_not_depend_on_cuts_nor_on_the_order_of_streams(how: str, seed: int, monkeypatch: Any) -> None:
    # Out of order, late, several source partitions, chunks of two rows. Every source partition is heard of in the first
    # batch. The rows of each come in their order, those of different ones in any.
    monkeypatch.setattr(buckets, "CHUNK_ROWS", 2)
    random = Random(seed)
    for _ in range(sample_size(8, 100)):
        events, window = random_events(random, is_ordered=False, sources=2), random_window(random)
        first = [row(n % 2, 0, source=n, name=None, city=None, age=None) for n in range(4)]
        queues = [[event for event in events if event["source"] == source] for source in range(4)]
        mixed: list[Event] = []
        while any(queues):
            mixed.append(random.choice([queue for queue in queues if queue]).pop(0))
        mixed = [{**event, ORDER: place} for place, event in enumerate(mixed, 4)]
        run = Run(how, window)
        run.process([{**event, ORDER: place} for place, event in enumerate(first)])
        found = run.feed(mixed, random)
        events = [*first, *events]
        assert Counter(map(simplify, found)) == model(how, events, window)
        assert run.late == sum(is_late(event, window) and not is_dropped(event, how) for event in events)
        assert run.dropped == sum(is_dropped(event, how) for event in events)


def row(side: int, at: int, key: str = "a", **more: Any) -> Event:
    content = {"name": "x"} if side == 0 else {"city": "c", "age": 1}
    return {
        "side": side,
        "at": at,
        "stream_time": at,
        "source": side,
        "key": key,
        "id": key,
        ORDER: at,
        **content,
        **more,
    }


def test_equal_rows_are_two_rows() -> None:
    run = Run("inner", JoinWindow(5, 5, 0))
    run.process([row(0, 1), row(0, 1)])
    assert len(run.process([row(1, 1), row(1, 1)])) == 4
    assert len(run.process([row(0, 1), row(0, 1)])) == 4


def test_expired_rows_leave_the_stores() -> None:
    run = Run("left", JoinWindow(5, 5, 10))
    for at in range(0, 200, 2):
        run.process([row(0, at, key=f"l{at}"), row(1, at, key=f"r{at}")])
    for name in ("join-left", "join-right", "join-unmatched"):
        assert 5 < len(run.state.readers[name].values) < 25
    assert len(run.found) == 92
    run.process([row(0, 1000, name=None), row(1, 1000)])
    assert len(run.found) == 100
    assert len(run.state.readers["join-unmatched"].values) == 0
    assert len(run.state.readers["join-left"].values) == 1


def test_a_row_without_a_match_keeps_its_times_but_has_no_record() -> None:
    run = Run("left", JoinWindow(5, 5, 0))
    run.process([row(0, 3, source=7), row(1, 3, key="b")])
    (found,) = run.process([row(1, 20), row(0, 20, key="b", source=7, name=None)])
    assert simplify(found) == ("a", "x", None, None, 3)
    assert (found[SOURCE], found[OFFSET], found[ORDER]) == (7, None, 20)


def test_time_goes_on_with_the_clock_if_all_is_idle() -> None:
    # With close_idle a source partition without records holds up nobody. A match that comes afterwards is none.
    run = Run("left", JoinWindow(5, 5, 0, close_idle_ms=100))
    run.process([row(0, 3), row(1, 3, key="b")])
    assert run.process([], idle_times={0: 99, 1: 99}) == []
    assert len(run.process([], idle_times={0: 100, 1: 100})) == 1
    assert run.process([row(1, 4)]) == []


def test_times_of_partitions_without_rows_close_windows() -> None:
    run = Run("left", JoinWindow(5, 5, 0))
    run.process([row(0, 3), row(1, 3, key="b")])
    assert run.process([], source_times={0: 100}) == []
    assert len(run.process([], source_times={1: 9})) == 1


@pytest.mark.parametrize("is_left_first", [True, False])
def test_a_right_row_is_too_late_for_a_left_row_in_either_order(is_left_first: bool) -> None:
    # The right row is not late: a left row after it would match. But when it came its own source partition had passed
    # the end of the left row, so the left row may have come out without a match.
    run = Run("left", JoinWindow(10, 0, 0))
    batches = [[row(0, 20)], [row(1, 15, stream_time=23)]]
    for batch in batches if is_left_first else reversed(batches):
        run.process(batch)
    run.process([row(0, 23, name="y"), row(1, 30, key="b")])
    run.process([row(0, 40, name=None), row(1, 40, key="b")])
    assert [simplify(each) for each in run.found] == [("a", "x", None, None, 20), ("a", "y", "c", 1, 23)]
