"""The checker finds partial transactions, transactions that did not end as their producer was told, and wrong polls."""

import pytest

from ottla.topic_partition import TopicPartition
from tests.simulation.checker import Promise, check
from tests.simulation.history import (
    Acknowledged,
    Assigned,
    Batch,
    Event,
    History,
    NotWritten,
    Outcome,
    Polled,
    Sent,
    TransactionEnded,
    WatermarksSeen,
)

LEFT, RIGHT = TopicPartition("orders", 0), TopicPartition("orders", 1)
OPEN = Batch("p", 1, 0, LEFT, (b"open",), idempotent=False)
A, B = (
    Batch("p", 1, 1, partition, (name,), False, transaction="t1") for partition, name in ((LEFT, b"a"), (RIGHT, b"b"))
)
EVENTS: list[Event] = [
    *(Sent(batch) for batch in (OPEN, A, B)),
    *(Acknowledged(batch, 1, offset) for batch, offset in ((OPEN, 0), (A, 1), (B, 0))),
]
COMMITTED, ABORTED = (TransactionEnded("t1", outcome) for outcome in Outcome)
FINAL = {LEFT: ((0, b"open"), (1, b"a")), RIGHT: ((0, b"b"),)}
NONE_SHOWN = {LEFT: ((0, b"open"),), RIGHT: ()}


def find_broken_promises(
    events: list[Event], committed: dict[TopicPartition, tuple[tuple[int, bytes], ...]], transactional: bool = True
) -> list[Promise]:
    """The promises that a history breaks, each once, in the order of `Promise`."""
    topics = frozenset({"orders"} if transactional else ())
    history = History(frozenset(), [*EVENTS, *events], FINAL, committed=committed, transactional_topics=topics)
    found = {violation.promise for violation in check(history)}
    return [promise for promise in Promise if promise in found]


def polled(*records: tuple[int, bytes], read_committed: bool = True) -> Polled:
    return Polled("c", LEFT, records, read_committed)


def test_a_correct_history_breaks_no_promise() -> None:
    # A transaction is shown if it was committed, not shown if it was aborted, and either if the outcome is unknown.
    everything = polled((0, b"open"), (1, b"a"))
    assert find_broken_promises([COMMITTED, everything], FINAL) == []
    assert find_broken_promises([ABORTED, polled((0, b"open"))], NONE_SHOWN) == []
    assert find_broken_promises([], FINAL) == []
    assert find_broken_promises([], NONE_SHOWN) == []
    assert (
        find_broken_promises([ABORTED, Polled("c", LEFT, ((0, b"open"), (1, b"a")))], NONE_SHOWN) == []
    )  # read_uncommitted


def test_a_committed_transaction_that_is_not_shown_is_lost() -> None:
    assert find_broken_promises([COMMITTED], NONE_SHOWN) == [Promise.LOST]
    assert find_broken_promises([COMMITTED], {LEFT: FINAL[LEFT], RIGHT: ()}) == [Promise.LOST]


def test_an_aborted_transaction_that_is_shown_is_an_aborted_read() -> None:
    # The record is shown in the final log, or was shown to a consumer before.
    assert find_broken_promises([ABORTED], FINAL) == [Promise.ABORTED_READ]
    assert find_broken_promises([ABORTED, polled((0, b"open"), (1, b"a"))], NONE_SHOWN) == [Promise.ABORTED_READ]


def test_half_a_transaction_is_reported_whatever_its_outcome() -> None:
    assert find_broken_promises([], {LEFT: FINAL[LEFT], RIGHT: ()}) == [Promise.IN_PART]


def test_a_record_read_as_committed_that_was_not_is_a_dirty_read() -> None:
    assert find_broken_promises([polled((0, b"open"), (1, b"a"))], NONE_SHOWN) == [Promise.DIRTY_READ]


def test_a_record_that_was_refused_for_good_must_not_appear() -> None:
    # The record may be neither in the log nor in a poll.
    refused = Batch("q", 1, 0, LEFT, (b"r",), idempotent=True)
    told: list[Event] = [Sent(refused), NotWritten(refused, "NOT_ENOUGH_REPLICAS")]
    assert find_broken_promises(told, NONE_SHOWN) == []
    assert Promise.UNDONE in find_broken_promises([*told, polled((1, b"r"), read_committed=False)], NONE_SHOWN)
    written = History(frozenset(), [Sent(refused), NotWritten(refused, "any")], {LEFT: ((0, b"r"),)})
    assert [violation.promise for violation in check(written)] == [Promise.UNDONE]


def test_a_poll_that_leaves_a_record_out_is_a_gap() -> None:
    # The gap begins at the position of the assignment, or at that of the poll before.
    assert find_broken_promises([Assigned("c", LEFT, 0), polled((1, b"a"))], FINAL) == [Promise.GAP]
    assert find_broken_promises([Assigned("c", LEFT, 1), polled((1, b"a"))], FINAL) == []
    assert find_broken_promises([Assigned("c", LEFT, 0), polled((0, b"open")), polled((1, b"a"))], FINAL) == []


def test_polls_that_go_back_are_reported() -> None:
    # Offsets go back neither within one poll nor between two polls. A new assignment may go back.
    again = polled((0, b"open"), (1, b"a"))
    assert find_broken_promises([again, polled((1, b"a"))], FINAL) == [Promise.BACKWARDS]
    assert find_broken_promises([polled((1, b"a"), (0, b"open"))], FINAL) == [Promise.BACKWARDS]
    assert find_broken_promises([again, Assigned("c", LEFT, 0), again], FINAL) == []


@pytest.mark.parametrize(("start", "end"), [(0, 2), (1, 1)])
def test_watermarks_that_go_back_are_reported(start: int, end: int) -> None:
    # Only the offsets that one observer was told are compared: those of two observers have no order.
    first, second = WatermarksSeen("w", LEFT, 1, 2), WatermarksSeen("w", LEFT, start, end)
    assert find_broken_promises([first, second], NONE_SHOWN) == [Promise.BACKWARDS]
    assert find_broken_promises([first, WatermarksSeen("v", LEFT, start, end)], NONE_SHOWN) == []


def test_offsets_are_dense_unless_transactions_write_to_the_topic() -> None:
    # A marker takes an offset that no record has.
    history = History(frozenset(), [Sent(OPEN), Sent(A)], {LEFT: ((0, b"open"), (2, b"a"))}, committed=FINAL)
    assert [violation.promise for violation in check(history)] == [Promise.GAP]
    history.transactional_topics = frozenset({"orders"})
    assert check(history) == []


def test_one_offset_with_two_values_is_changed() -> None:
    # Two consumers read from different leaders.
    events: list[Event] = [polled((1, b"a")), Polled("d", LEFT, ((1, b"open"),))]
    assert Promise.CHANGED in find_broken_promises(events, FINAL)
