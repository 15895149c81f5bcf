"""The checker of committed offsets finds every kind of wrong history, and finds nothing in correct ones."""

import pytest

from tests.simulation.checker import check
from tests.simulation.history import Committing, Ended, Ending, Event, History, OffsetKnown

SENT: list[Event] = [Committing("g", offset) for offset in (1, 2, 3)]
ALL_KNOWN: list[Event] = [*SENT, *(OffsetKnown("g", 1, offset) for offset in (1, 2, 3))]
KILL, CUT, SHUTDOWN = (Ended(1, ending) for ending in (Ending.KILL, Ending.POWER_CUT, Ending.SHUTDOWN))


def find_broken_promises(events: list[Event], final: int, *, durable: bool = False) -> list[str]:
    topics = frozenset({"__consumer_offsets"} if durable else ())
    history = History(topics, events, final_offsets={"g": final})
    return [violation.promise.name for violation in check(history)]


def test_correct_histories_break_no_promise() -> None:
    # All offsets are there; or the last commit had no answer and is there or not; or nothing was ever committed.
    assert find_broken_promises([*ALL_KNOWN, KILL, OffsetKnown("g", 2, 3)], 3, durable=True) == []
    unanswered = [*SENT, OffsetKnown("g", 1, 1), OffsetKnown("g", 1, 2)]
    assert (
        find_broken_promises(unanswered, 2) == find_broken_promises(unanswered, 3) == find_broken_promises([], -1) == []
    )


@pytest.mark.parametrize("ending", [KILL, SHUTDOWN])
def test_a_stored_offset_that_is_gone_is_lost(ending: Ended) -> None:
    # Neither a kill nor a shutdown excuses the loss; a power cut does, except where every message is flushed.
    assert find_broken_promises([*ALL_KNOWN, ending], 2) == find_broken_promises([*ALL_KNOWN, ending], -1) == ["LOST"]
    assert find_broken_promises([*ALL_KNOWN, CUT], 2) == []
    assert find_broken_promises([*ALL_KNOWN, CUT], 2, durable=True) == ["LOST"]


def test_an_offset_does_not_go_back() -> None:
    # An offset goes back neither within a life nor after a kill.
    assert find_broken_promises([*ALL_KNOWN, OffsetKnown("g", 1, 2)], 3) == ["BACKWARDS"]
    assert find_broken_promises([*ALL_KNOWN, KILL, OffsetKnown("g", 2, 1)], 3) == ["BACKWARDS"]


def test_a_commit_without_an_answer_may_come_late() -> None:
    # Offset 2 was sent before 3 and arrived after it.
    events: list[Event] = [*SENT, OffsetKnown("g", 1, 1), OffsetKnown("g", 1, 3)]
    assert find_broken_promises(events, 2) == []
    assert find_broken_promises(events, 1) == ["LOST"]


def test_an_offset_that_nobody_sent_is_reported() -> None:
    assert find_broken_promises(ALL_KNOWN, 7) == ["CHANGED"]
