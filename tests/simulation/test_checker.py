"""The checker finds every kind of wrong history, and has nothing to say about right ones."""

import pytest

from ottla.topic_partition import TopicPartition
from tests.simulation.checker import Promise, check
from tests.simulation.history import (
    Acknowledged,
    Batch,
    Ended,
    Ending,
    Event,
    Fetched,
    History,
    OutOfRange,
    Refused,
    Sent,
)

PLACE = TopicPartition("orders", 0)


def batch(number: int, *values: str, identity: int = 1, producer: str = "p", idempotent: bool = True) -> Batch:
    return Batch(producer, identity, number, PLACE, tuple(value.encode() for value in values), idempotent)


A, B, C = batch(0, "a1", "a2"), batch(1, "b"), batch(2, "c")
SENT: list[Event] = [Sent(A), Sent(B), Sent(C)]
KILL, CUT, SHUTDOWN = (Ended(1, ending) for ending in (Ending.KILL, Ending.POWER_CUT, Ending.SHUTDOWN))


def fetched(position: int, *values: str, life: int = 1, high_watermark: int | None = None) -> Fetched:
    records = tuple((position + delta, value.encode()) for delta, value in enumerate(values))
    top = position + len(values) if high_watermark is None else high_watermark
    return Fetched("c", PLACE, life, position, records, top)


def log(*values: str | None) -> tuple[tuple[int, bytes], ...]:
    """A final log; None leaves an offset out."""
    return tuple((offset, value.encode()) for offset, value in enumerate(values) if value is not None)


def broken(events: list[Event], *values: str | None, durable: bool = False) -> list[Promise]:
    """The promises that a history breaks, each once, in the order of `Promise`."""
    history = History(frozenset({"orders"} if durable else ()), [*SENT, *events], {PLACE: log(*values)})
    found = {violation.promise for violation in check(history)}
    return [promise for promise in Promise if promise in found]


@pytest.mark.parametrize("durable", [False, True])
def test_a_right_history_breaks_nothing(durable: bool) -> None:
    # Answers, reads, a crash without loss and a batch whose fate the producer never learned.
    events: list[Event] = [
        Acknowledged(A, 1, 0),
        fetched(0, "a1", high_watermark=2),
        fetched(1, "a2"),
        KILL,
        Acknowledged(B, 2, None),
        fetched(2, "b", life=2),
    ]
    assert broken(events, "a1", "a2", "b", durable=durable) == []
    assert broken(events, "a1", "a2", "b", "c", durable=durable) == []


@pytest.mark.parametrize("ending", [KILL, SHUTDOWN])
def test_an_acknowledged_record_that_is_gone_is_lost(ending: Ended) -> None:
    # Neither a kill nor a shutdown excuses it, nor a power cut in a later life that follows a shutdown.
    assert broken([Acknowledged(A, 1, 0), ending]) == [Promise.LOST]
    later: list[Event] = [Ended(2, Ending.POWER_CUT)]
    expected = [Promise.LOST] if ending is SHUTDOWN else []
    assert broken([Acknowledged(A, 1, 0), ending, *later]) == expected


def test_a_power_cut_excuses_a_loss_unless_every_message_is_flushed() -> None:
    # The same history, once with flush.messages=1 and once without; and without any cut.
    assert broken([Acknowledged(A, 1, 0), CUT]) == []
    assert broken([Acknowledged(A, 1, 0), CUT], durable=True) == [Promise.LOST]
    assert broken([fetched(0, "a1", "a2"), CUT], durable=True) == [Promise.LOST]
    assert broken([Acknowledged(A, 2, 0), CUT]) == [Promise.LOST]


def test_a_batch_known_to_be_there_without_an_offset_must_be_there() -> None:
    # The answer to a duplicate that is too old to be remembered.
    assert broken([Acknowledged(A, 1, None), KILL]) == [Promise.LOST]
    assert broken([Acknowledged(A, 1, None), CUT]) == []


def test_a_power_cut_takes_the_end_and_nothing_from_the_middle() -> None:
    # B was behind A and is still there: A may not be gone.
    events: list[Event] = [Acknowledged(A, 1, 0), Acknowledged(B, 1, 2), CUT]
    assert Promise.HOLE in broken(events, "c", None, "b")
    assert broken(events, "a1", "a2") == []
    assert broken(events, None, None, "b") == []  # the first segment's name was lost: the log begins later
    assert Promise.LOST in broken(events, None, None, "b", durable=True)
    assert broken([Acknowledged(A, 1, 0), CUT, Acknowledged(C, 2, 0)], "c") == []


def test_a_value_in_the_log_twice_is_duplicated() -> None:
    # Next to each other or far apart.
    assert broken([], "a1", "a2", "b", "b") == [Promise.DUPLICATED]
    assert Promise.DUPLICATED in broken([Acknowledged(A, 1, 0)], "a1", "a2", "b", "a1", "a2")


def test_batches_out_of_order_or_in_pieces_are_reordered() -> None:
    # Across identities there is no order: a new producer id or connection may overtake what was in flight before.
    assert Promise.REORDERED in broken([], "b", "a1", "a2")
    assert Promise.REORDERED in broken([], "a2", "a1", "b")
    assert Promise.REORDERED in broken([], "a1", "b", "a2")
    assert Promise.REORDERED in broken([], "a1")
    other = batch(3, "d", identity=2)
    assert broken([Sent(other)], "d", "a1", "a2", "b") == []


def test_an_idempotent_batch_without_the_one_before_it_was_skipped() -> None:
    # For others it is no wrong: what was sent once and lost on the way is lost.
    assert broken([], "a1", "a2", "c") == [Promise.SKIPPED]
    plain: list[Event] = [Sent(batch(number, f"p{number}", producer="q", idempotent=False)) for number in range(3)]
    assert broken(plain, "p0", "p2") == []


def test_values_that_nobody_sent_or_offsets_with_two_values_are_changed() -> None:
    assert broken([], "a1", "x2") == [Promise.REORDERED, Promise.CHANGED]
    assert broken([fetched(0, "zz")], "a1", "a2") == [Promise.LOST, Promise.CHANGED]
    assert Promise.CHANGED in broken([fetched(0, "b"), KILL, fetched(0, "c", life=2)], "c")
    # After a power cut an offset may be used again, but not where every message is flushed.
    reused: list[Event] = [fetched(0, "a1", "a2"), CUT, fetched(0, "b", life=2)]
    assert Promise.CHANGED not in broken(reused, "b")
    assert Promise.CHANGED in broken(reused, "b", durable=True)


def test_offsets_that_are_left_out_are_a_gap() -> None:
    assert broken([], "a1", "a2", None, "b") == [Promise.GAP]
    assert broken([], None, "a1", "a2") == [Promise.GAP]
    assert broken([fetched(1, "a2")], "a1", "a2") == []
    missing = Fetched("c", PLACE, 1, 0, ((1, b"a2"),), 2)
    assert broken([missing], "a1", "a2") == [Promise.GAP]


def test_a_high_watermark_that_goes_back_is_told() -> None:
    # Within a life always; after a power cut only where every message is flushed; and no read goes beyond it.
    assert broken([fetched(0, high_watermark=2), fetched(0, high_watermark=1)], "a1", "a2") == [Promise.BACKWARDS]
    over_cut: list[Event] = [fetched(0, high_watermark=2), CUT, fetched(0, life=2, high_watermark=1)]
    assert broken(over_cut) == []
    assert broken(over_cut, durable=True) == [Promise.BACKWARDS]
    assert broken([fetched(0, "a1", "a2", high_watermark=1)], "a1", "a2") == [Promise.BACKWARDS]


@pytest.mark.parametrize("event", [Refused(B, 2, "OUT_OF_ORDER_SEQUENCE_NUMBER"), OutOfRange("c", PLACE, 2, 2)])
def test_what_was_told_may_be_forgotten_after_a_power_cut_only(event: Event) -> None:
    assert broken([KILL, event], "a1", "a2") == [Promise.FORGOTTEN]
    assert broken([CUT, event], "a1", "a2") == []
    assert broken([CUT, event], "a1", "a2", durable=True) == [Promise.FORGOTTEN]


def test_each_partition_is_judged_alone() -> None:
    # The violation names the partition; a partition without a final log has lost everything.
    elsewhere = Batch("p", 1, 0, TopicPartition("orders", 1), (b"e",), True)
    history = History(frozenset(), [Sent(elsewhere), Acknowledged(elsewhere, 1, 0)], {PLACE: ()})
    (violation,) = check(history)
    assert str(violation) == "LOST orders-1: e at 0, acknowledged p/1/0"
