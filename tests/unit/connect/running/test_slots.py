"""Which task a partition belongs to, and what a user is told about the task."""

from ottla.client.transactions import ProducerIdentity
from ottla.connect.running.slots import RETRY_PAUSES_S, TaskSlots
from ottla.connect.running.work import FAILED, RETRY, Failure
from ottla.connect.worker.runs import State


def test_partitions_are_spread_and_stay() -> None:
    """A new partition goes to a new task, as far as tasks.max allows, then to the task with the fewest."""
    slots = TaskSlots(2)
    assert [slots.find(key).number for key in "abcd"] == [0, 1, 0, 1]
    assert [slots.find(key).number for key in "dcba"] == [1, 0, 1, 0]
    slots.forget("a")
    slots.forget("c")
    assert [slots.find(key).number for key in "ef"] == [0, 0]
    assert [slot.number for slot in slots] == [0, 1]


def test_a_task_waits_longer_after_each_failure() -> None:
    """Until a success. A failure that a repetition cannot mend is FAILED."""
    slot = TaskSlots(1).find("a")
    slot.note_success(ProducerIdentity(1, 0))
    assert slot.state.state is State.RUNNING
    for pause_s in (*RETRY_PAUSES_S, RETRY_PAUSES_S[-1]):
        slot.note_failure(Failure(RETRY, "away\nmore"), 100.0)
        assert slot.retry_at_s == 100.0 + pause_s
        assert slot.producer is None
        assert (slot.state.state, slot.state.trace) == (State.RUNNING, "away\nmore")
    slot.note_success(ProducerIdentity(1, 1))
    assert slot.state.trace is None
    slot.note_failure(Failure(FAILED, "broken"), 100.0)
    assert (slot.is_failed, slot.retry_at_s, slot.state.state) == (True, 100.0 + RETRY_PAUSES_S[0], State.FAILED)
