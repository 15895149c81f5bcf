"""Records that compaction and retention remove do not count as lost, and nothing else is excused by them."""

import pytest

from ottla.topic_partition import TopicPartition
from tests.simulation.checker import Promise, check
from tests.simulation.history import Acknowledged, Batch, Event, Fetched, History, OutOfRange, Sent

PLACE = TopicPartition("orders", 0)
A = Batch("p", 1, 0, PLACE, (b"a1", b"a2"), True, (b"k", b"l"))
B = Batch("p", 1, 1, PLACE, (b"b",), True, (b"k",))
KNOWN: list[Event] = [Sent(A), Sent(B), Acknowledged(A, 1, 0), Acknowledged(B, 1, 2)]


def find_broken_promises(
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


def test_compaction_may_remove_a_record_with_a_newer_one_of_its_key() -> None:
    assert find_broken_promises((1, b"a2"), (2, b"b"), policy="compact") == []
    assert Promise.LOST in find_broken_promises((1, b"a2"), (2, b"b"))


def test_compaction_may_not_remove_the_newest_record_of_a_key() -> None:
    assert find_broken_promises((0, b"a1"), (2, b"b"), policy="compact") == [Promise.LOST]
    assert find_broken_promises((0, b"a1"), (1, b"a2"), policy="compact") == [Promise.LOST]


def test_retention_may_remove_records_before_the_beginning() -> None:
    assert find_broken_promises((2, b"b"), start=2, policy="delete") == []
    assert find_broken_promises(start=3, policy="delete") == []
    assert Promise.LOST in find_broken_promises((2, b"b"), start=2, policy="compact")


def test_retention_may_not_leave_a_hole() -> None:
    assert Promise.LOST in find_broken_promises((0, b"a1"), (1, b"a2"), policy="delete")
    assert Promise.LOST in find_broken_promises((2, b"b"), start=0, policy="delete")


@pytest.mark.parametrize(("policy", "expected"), [("", [Promise.FORGOTTEN]), ("delete", [])])
def test_a_consumer_may_be_overtaken_by_retention(policy: str, expected: list[Promise]) -> None:
    lost = OutOfRange("c", PLACE, 1, 0)
    assert find_broken_promises((0, b"a1"), (1, b"a2"), (2, b"b"), events=(lost,), policy=policy) == expected


def test_a_fetch_from_a_compacted_log_may_skip_offsets_but_not_go_back() -> None:
    final = ((1, b"a2"), (2, b"b"))
    forward = Fetched("c", PLACE, 1, 0, final, 3)
    assert find_broken_promises(*final, events=(forward,), policy="compact") == []
    back = Fetched("c", PLACE, 1, 2, ((1, b"a2"),), 3)
    assert find_broken_promises(*final, events=(back,), policy="compact") == [Promise.GAP]
