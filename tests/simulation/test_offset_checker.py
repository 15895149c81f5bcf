"""The checker of committed offsets finds every kind of wrong history, and has nothing to say about right ones."""

import pytest

from tests.simulation.checker import check
from tests.simulation.history import Committing, Ended, Ending, Event, History, OffsetKnown

SENT: list[Event] = [Committing("g", offset) for offset in (1, 2, 3)]
ALL_KNOWN: list[Event] = [*SENT, *(OffsetKnown("g", 1, offset) for offset in (1, 2, 3))]
KILL, CUT, SHUTDOWN = (Ended(1, ending) for ending in (Ending.KILL, Ending.POWER_CUT, Ending.SHUTDOWN))


def broken(events: list[Event], final: int, *, durable: bool = False) -> list[str]:
    topics = frozenset({"__consumer_offsets"} if durable else ())
    history = History(topics, events, final_offsets={"g": final})
    return [violation.promise.name for violation in check(history)]


def test_right_histories() -> None:
    # Everything is there; the last commit had no answer, and is there or not; nothing was ever committed.
    assert broken([*ALL_KNOWN, KILL, OffsetKnown("g", 2, 3)], 3, durable=True) == []
    unanswered = [*SENT, OffsetKnown("g", 1, 1), OffsetKnown("g", 1, 2)]
    assert broken(unanswered, 2) == broken(unanswered, 3) == broken([], -1) == []


@pytest.mark.parametrize("ending", [KILL, SHUTDOWN])
def test_a_stored_offset_that_is_gone_is_lost(ending: Ended) -> None:
    # Neither a kill nor a shutdown excuses it; a power cut does, unless every message is flushed.
    assert broken([*ALL_KNOWN, ending], 2) == broken([*ALL_KNOWN, ending], -1) == ["LOST"]
    assert broken([*ALL_KNOWN, CUT], 2) == []
    assert broken([*ALL_KNOWN, CUT], 2, durable=True) == ["LOST"]


def test_an_offset_does_not_go_back() -> None:
    # Within a life, or over a kill.
    assert broken([*ALL_KNOWN, OffsetKnown("g", 1, 2)], 3) == ["BACKWARDS"]
    assert broken([*ALL_KNOWN, KILL, OffsetKnown("g", 2, 1)], 3) == ["BACKWARDS"]


def test_a_commit_without_an_answer_may_come_late() -> None:
    # Offset 2 was sent before 3 and arrived after it.
    events: list[Event] = [*SENT, OffsetKnown("g", 1, 1), OffsetKnown("g", 1, 3)]
    assert broken(events, 2) == []
    assert broken(events, 1) == ["LOST"]


def test_an_offset_that_nobody_sent() -> None:
    assert broken(ALL_KNOWN, 7) == ["CHANGED"]
