"""What compaction and retention take is not lost, and nothing else is excused by them."""

import pytest

from ottla.topic_partition import TopicPartition
from tests.simulation.checker import Promise, check
from tests.simulation.history import Acknowledged, Batch, Event, Fetched, History, OutOfRange, Sent

PLACE = TopicPartition("orders", 0)
A = Batch("p", 1, 0, PLACE, (b"a1", b"a2"), True, (b"k", b"l"))
B = Batch("p", 1, 1, PLACE, (b"b",), True, (b"k",))
KNOWN: list[Event] = [Sent(A), Sent(B), Acknowledged(A, 1, 0), Acknowledged(B, 1, 2)]


def broken(
    *final: tuple[int, bytes], events: tuple[Event, ...] = (), start: int = 0, policy: str = ""
) -> list[Promise]:
    topics = frozenset({PLACE.topic})
    history = History(
        topics,
        [*KNOWN, *events],
        {PLACE: final},
        {PLACE: start},
        compacted_topics=topics if policy == "compact" else frozenset(),
        expiring_topics=topics if policy == "delete" else frozenset(),
    )
    found = {violation.promise for violation in check(history)}
    return [promise for promise in Promise if promise in found]


def test_a_newer_record_with_its_key_excuses_one_that_is_gone() -> None:
    assert broken((1, b"a2"), (2, b"b"), policy="compact") == []
    assert Promise.LOST in broken((1, b"a2"), (2, b"b"))


def test_the_newest_record_of_a_key_is_never_excused() -> None:
    assert broken((0, b"a1"), (2, b"b"), policy="compact") == [Promise.LOST]
    assert broken((0, b"a1"), (1, b"a2"), policy="compact") == [Promise.LOST]


def test_what_is_before_the_beginning_is_excused_where_there_is_retention() -> None:
    assert broken((2, b"b"), start=2, policy="delete") == []
    assert broken(start=3, policy="delete") == []
    assert Promise.LOST in broken((2, b"b"), start=2, policy="compact")


def test_a_hole_is_no_retention() -> None:
    assert Promise.LOST in broken((0, b"a1"), (1, b"a2"), policy="delete")
    assert Promise.LOST in broken((2, b"b"), start=0, policy="delete")


@pytest.mark.parametrize(("policy", "expected"), [("", [Promise.FORGOTTEN]), ("delete", [])])
def test_a_consumer_may_fall_behind_retention(policy: str, expected: list[Promise]) -> None:
    lost = OutOfRange("c", PLACE, 1, 0)
    assert broken((0, b"a1"), (1, b"a2"), (2, b"b"), events=(lost,), policy=policy) == expected


def test_a_fetch_from_a_compacted_log_may_pass_over_offsets_and_not_go_back() -> None:
    final = ((1, b"a2"), (2, b"b"))
    forward = Fetched("c", PLACE, 1, 0, final, 3)
    assert broken(*final, events=(forward,), policy="compact") == []
    back = Fetched("c", PLACE, 1, 2, ((1, b"a2"),), 3)
    assert broken(*final, events=(back,), policy="compact") == [Promise.GAP]
