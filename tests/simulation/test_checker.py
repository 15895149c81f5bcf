"""The checker finds every kind of wrong history, and finds nothing in correct ones."""

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


def build_batch(number: int, *values: str, identity: int = 1, producer: str = "p", idempotent: bool = True) -> Batch:
    return Batch(producer, identity, number, PLACE, tuple(value.encode() for value in values), idempotent)


A, B, C = build_batch(0, "a1", "a2"), build_batch(1, "b"), build_batch(2, "c")
SENT: list[Event] = [Sent(A), Sent(B), Sent(C)]
KILL, CUT, SHUTDOWN = (Ended(1, ending) for ending in (Ending.KILL, Ending.POWER_CUT, Ending.SHUTDOWN))


def build_fetch(position: int, *values: str, life: int = 1, high_watermark: int | None = None) -> Fetched:
    records = tuple((position + delta, value.encode()) for delta, value in enumerate(values))
    top = position + len(values) if high_watermark is None else high_watermark
    return Fetched("c", PLACE, life, position, records, top)


def build_log(*values: str | None) -> tuple[tuple[int, bytes], ...]:
    """Build a final log from values; None leaves an offset out."""
    return tuple((offset, value.encode()) for offset, value in enumerate(values) if value is not None)


def find_broken_promises(events: list[Event], *values: str | None, durable: bool = False) -> list[Promise]:
    """The promises that a history breaks, each once, in the order of `Promise`."""
    history = History(frozenset({"orders"} if durable else ()), [*SENT, *events], {PLACE: build_log(*values)})
    found = {violation.promise for violation in check(history)}
    return [promise for promise in Promise if promise in found]


@pytest.mark.parametrize("durable", [False, True])
def test_a_correct_history_breaks_no_promise(durable: bool) -> None:
    # The history has answers, reads, a crash without loss, and a batch whose result the producer never learned.
    events: list[Event] = [
        Acknowledged(A, 1, 0),
        build_fetch(0, "a1", high_watermark=2),
        build_fetch(1, "a2"),
        KILL,
        Acknowledged(B, 2, None),
        build_fetch(2, "b", life=2),
    ]
    assert find_broken_promises(events, "a1", "a2", "b", durable=durable) == []
    assert find_broken_promises(events, "a1", "a2", "b", "c", durable=durable) == []


@pytest.mark.parametrize("ending", [KILL, SHUTDOWN])
def test_an_acknowledged_record_that_is_gone_is_lost(ending: Ended) -> None:
    # Neither a kill nor a shutdown excuses the loss, nor does a power cut in a later life that follows a shutdown.
    assert find_broken_promises([Acknowledged(A, 1, 0), ending]) == [Promise.LOST]
    later: list[Event] = [Ended(2, Ending.POWER_CUT)]
    expected = [Promise.LOST] if ending is SHUTDOWN else []
    assert find_broken_promises([Acknowledged(A, 1, 0), ending, *later]) == expected


def test_a_power_cut_excuses_a_loss_unless_every_message_is_flushed() -> None:
    # The same history is checked with flush.messages=1 and without it, and without any power cut.
    assert find_broken_promises([Acknowledged(A, 1, 0), CUT]) == []
    assert find_broken_promises([Acknowledged(A, 1, 0), CUT], durable=True) == [Promise.LOST]
    assert find_broken_promises([build_fetch(0, "a1", "a2"), CUT], durable=True) == [Promise.LOST]
    assert find_broken_promises([Acknowledged(A, 2, 0), CUT]) == [Promise.LOST]


def test_a_batch_acknowledged_without_an_offset_must_be_in_the_log() -> None:
    # A broker answers without an offset to a duplicate that is too old to be remembered.
    assert find_broken_promises([Acknowledged(A, 1, None), KILL]) == [Promise.LOST]
    assert find_broken_promises([Acknowledged(A, 1, None), CUT]) == []


def test_a_power_cut_may_take_the_end_but_nothing_from_the_middle() -> None:
    # B was behind A and is still there, so A may not be gone.
    events: list[Event] = [Acknowledged(A, 1, 0), Acknowledged(B, 1, 2), CUT]
    assert Promise.HOLE in find_broken_promises(events, "c", None, "b")
    assert find_broken_promises(events, "a1", "a2") == []
    assert (
        find_broken_promises(events, None, None, "b") == []
    )  # the name of the first segment was lost: the log begins later
    assert Promise.LOST in find_broken_promises(events, None, None, "b", durable=True)
    assert find_broken_promises([Acknowledged(A, 1, 0), CUT, Acknowledged(C, 2, 0)], "c") == []


def test_a_value_in_the_log_twice_is_duplicated() -> None:
    # The two values are next to each other, or far apart.
    assert find_broken_promises([], "a1", "a2", "b", "b") == [Promise.DUPLICATED]
    assert Promise.DUPLICATED in find_broken_promises([Acknowledged(A, 1, 0)], "a1", "a2", "b", "a1", "a2")


def test_batches_out_of_order_or_in_pieces_are_reordered() -> None:
    # There is no order between identities: a new producer id or connection may overtake what was in flight before.
    assert Promise.REORDERED in find_broken_promises([], "b", "a1", "a2")
    assert Promise.REORDERED in find_broken_promises([], "a2", "a1", "b")
    assert Promise.REORDERED in find_broken_promises([], "a1", "b", "a2")
    assert Promise.REORDERED in find_broken_promises([], "a1")
    other = build_batch(3, "d", identity=2)
    assert find_broken_promises([Sent(other)], "d", "a1", "a2", "b") == []


def test_an_idempotent_batch_without_its_predecessor_is_reported() -> None:
    # A batch of any other producer is sent once, and may be lost on the way.
    assert find_broken_promises([], "a1", "a2", "c") == [Promise.SKIPPED]
    plain: list[Event] = [
        Sent(build_batch(number, f"p{number}", producer="q", idempotent=False)) for number in range(3)
    ]
    assert find_broken_promises(plain, "p0", "p2") == []


def test_values_nobody_sent_and_offsets_with_two_values_are_reported() -> None:
    assert find_broken_promises([], "a1", "x2") == [Promise.REORDERED, Promise.CHANGED]
    assert find_broken_promises([build_fetch(0, "zz")], "a1", "a2") == [Promise.LOST, Promise.CHANGED]
    assert Promise.CHANGED in find_broken_promises([build_fetch(0, "b"), KILL, build_fetch(0, "c", life=2)], "c")
    # After a power cut an offset may be used again, except where every message is flushed.
    reused: list[Event] = [build_fetch(0, "a1", "a2"), CUT, build_fetch(0, "b", life=2)]
    assert Promise.CHANGED not in find_broken_promises(reused, "b")
    assert Promise.CHANGED in find_broken_promises(reused, "b", durable=True)


def test_offsets_that_are_left_out_are_a_gap() -> None:
    assert find_broken_promises([], "a1", "a2", None, "b") == [Promise.GAP]
    assert find_broken_promises([], None, "a1", "a2") == [Promise.GAP]
    assert find_broken_promises([build_fetch(1, "a2")], "a1", "a2") == []
    missing = Fetched("c", PLACE, 1, 0, ((1, b"a2"),), 2)
    assert find_broken_promises([missing], "a1", "a2") == [Promise.GAP]


def test_a_high_watermark_that_goes_back_is_reported() -> None:
    # Within a life it never goes back; after a power cut it may, except where every message is flushed. No read goes
    # beyond it.
    assert find_broken_promises([build_fetch(0, high_watermark=2), build_fetch(0, high_watermark=1)], "a1", "a2") == [
        Promise.BACKWARDS
    ]
    over_cut: list[Event] = [build_fetch(0, high_watermark=2), CUT, build_fetch(0, life=2, high_watermark=1)]
    assert find_broken_promises(over_cut) == []
    assert find_broken_promises(over_cut, durable=True) == [Promise.BACKWARDS]
    assert find_broken_promises([build_fetch(0, "a1", "a2", high_watermark=1)], "a1", "a2") == [Promise.BACKWARDS]


@pytest.mark.parametrize("event", [Refused(B, 2, "OUT_OF_ORDER_SEQUENCE_NUMBER"), OutOfRange("c", PLACE, 2, 2)])
def test_a_broker_may_forget_only_after_a_power_cut(event: Event) -> None:
    assert find_broken_promises([KILL, event], "a1", "a2") == [Promise.FORGOTTEN]
    assert find_broken_promises([CUT, event], "a1", "a2") == []
    assert find_broken_promises([CUT, event], "a1", "a2", durable=True) == [Promise.FORGOTTEN]


def test_each_partition_is_checked_alone() -> None:
    # The violation names the partition. A partition without a final log has lost everything.
    elsewhere = Batch("p", 1, 0, TopicPartition("orders", 1), (b"e",), True)
    history = History(frozenset(), [Sent(elsewhere), Acknowledged(elsewhere, 1, 0)], {PLACE: ()})
    (violation,) = check(history)
    assert str(violation) == "LOST orders-1: e at 0, acknowledged p/1/0"
