"""How long tasks that fail are tried again: task.timeout.ms without success, and a restore that goes on is none."""

import pytest

from ottla.streams.errors import StreamsError
from ottla.streams.running.troubles import RETRY_PAUSES_S, WHOLE, Troubles
from ottla.streams.running.work import BROKEN, STILL_RESTORING, Failure

BROKEN_TASK = Failure(BROKEN, "the broker is away")
RESTORE = Failure(STILL_RESTORING, "at offset 10 of 20")


def test_a_task_that_fails_for_too_long_ends_the_app() -> None:
    troubles = Troubles("counts", 5.0)
    for now_s in range(6):
        troubles.note(3, BROKEN_TASK, now_s)
    with pytest.raises(StreamsError, match="counts, partition 3: no success within 5 s: the broker is away"):
        troubles.note(3, BROKEN_TASK, 5.5)


def test_a_restore_that_goes_on_takes_as_long_as_it_takes() -> None:
    """Only the time since the restore was last seen to come further counts."""
    troubles = Troubles("counts", 5.0)
    for now_s in range(100):
        troubles.note(0, RESTORE, now_s)
    troubles.note(0, BROKEN_TASK, 104)
    with pytest.raises(StreamsError, match="no success within 5 s"):
        troubles.note(0, BROKEN_TASK, 104.5)


def test_success_ends_the_trouble_of_its_task_alone() -> None:
    troubles = Troubles("counts", 5.0)
    troubles.note(0, BROKEN_TASK, 0)
    troubles.note(WHOLE, BROKEN_TASK, 0)
    assert not troubles.end(7)
    assert not troubles.end(WHOLE)
    assert troubles
    assert troubles.end(0)
    assert not troubles
    troubles.note(0, BROKEN_TASK, 100)  # a new trouble, with a time of its own
    troubles.note(0, BROKEN_TASK, 105)


def test_pauses_between_attempts_grow() -> None:
    troubles = Troubles("counts", 100.0)
    assert troubles.pause_s(0, 0) == 0
    for now_s, pause_s in enumerate((*RETRY_PAUSES_S, RETRY_PAUSES_S[-1])):
        troubles.note(0, BROKEN_TASK, 10 * now_s)
        assert troubles.pause_s(0, 10 * now_s) == pytest.approx(pause_s)
        assert troubles.pause_s(0, 10 * now_s + pause_s) == 0
