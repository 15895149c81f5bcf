"""Counters of the machines: each number goes up with what it stands for, and with nothing else."""

from ottla.coordinators.machine import ProducerIdentity
from ottla.observability.metrics import DurationMeter
from tests.unit.coordinators import classic_scripts, consumer_scripts, transaction_scripts
from tests.unit.coordinators.offset_desk import Desk

MINUTE_MS = 60_000


def read_meter(meter: DurationMeter) -> tuple[int, float]:
    """The count, and the sum of seconds."""
    return sum(meter.counts), meter.seconds


def test_a_classic_rebalance_lasts_until_the_assignment() -> None:
    # The time counts from the first join, also if the rebalance starts over before it is done. One that ends without
    # members does not count.
    stage = classic_scripts.play("""
        a joins version=3       | [PreparingRebalance]
        3000 ms pass            | [CompletingRebalance]; a: generation 1, leads a
        1000 ms pass            |
        a syncs a=p0            | stores generation 1 a=p0; [Stable]; a: gets p0
    """)
    assert read_meter(stage.meters.groups.classic_rebalances) == (1, 4.0)
    stage.play("""
        b joins version=3       | [PreparingRebalance]
        2000 ms pass            |
        a joins                 | [CompletingRebalance]; a: generation 2, leads a b; b: generation 2
        c joins version=3       | [PreparingRebalance]
        500 ms pass             |
        a joins                 |
        b joins                 | [CompletingRebalance]; a: generation 3, leads a b c; b: generation 3; c: generation 3
        a syncs a=p0 b=p1 c=p2  | stores generation 3 a=p0 b=p1 c=p2; [Stable]; a: gets p0
        b syncs                 | b: gets p1
    """)
    assert read_meter(stage.meters.groups.classic_rebalances) == (2, 6.5)


def test_a_consumer_group_has_rebalanced_when_every_member_is_there() -> None:
    # Each raised epoch counts. The time continues until the last member has its target assignment.
    stage = consumer_scripts.play("""
        a joins topics=t        | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t        | [Reconciling]; b: epoch 3, reads nothing
        a beats                 | a: epoch 2, reads t0 t1
        2000 ms pass            |
        a beats                 | a: epoch 3
        1000 ms pass            |
        b beats                 | [Stable]; b: epoch 3, reads t2 t3
        a beats                 | a: epoch 3
    """)
    assert stage.meters.groups.epochs_raised == 2
    assert read_meter(stage.meters.groups.consumer_rebalances) == (2, 3.0)


def test_a_rebalance_that_a_lost_member_causes_is_counted() -> None:
    # The epoch is raised when the session of b times out; the rebalance lasts until a has the partitions of b.
    stage = consumer_scripts.play("""
        a joins topics=t        | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t        | [Reconciling]; b: epoch 3, reads nothing
        a beats                 | a: epoch 2, reads t0 t1
        a beats                 | a: epoch 3
        b beats                 | [Stable]; b: epoch 3, reads t2 t3
        30000 ms pass           |
        a beats                 | a: epoch 3
        20000 ms pass           | [Assigning]
        1500 ms pass            |
        a beats                 | [Stable]; a: epoch 4, reads t0 t1 t2 t3
    """)
    assert stage.meters.groups.epochs_raised == 3
    count, seconds = read_meter(stage.meters.groups.consumer_rebalances)
    assert count == 3
    assert seconds == 5.0 + 1.5  # b was removed 45 s after its last heartbeat, 5 s before the 20 s were over


def test_offsets_are_counted_when_they_come_and_go() -> None:
    # This includes those of transactions. Refused ones do not count, those deleted with their group or topic do.
    desk = Desk(offsets_retention_minutes=1)
    desk.commit(1)
    desk.commit(1, topic="u")
    desk.commit(1, topic="unknown")
    desk.commit_in_transaction(2, ProducerIdentity(7, 0))
    meter = desk.meters.groups
    assert (meter.offsets_committed, meter.offsets_deleted, meter.offsets_expired) == (3, 0, 0)
    desk.end_transaction(ProducerIdentity(7, 0), committed=True)
    desk.delete_offsets("u")
    assert meter.offsets_deleted == 1
    desk.delete_group()
    assert meter.offsets_deleted == 2
    desk.commit(1)
    desk.delete_topic("t")
    assert (meter.offsets_committed, meter.offsets_deleted, meter.offsets_expired) == (4, 3, 0)
    desk.commit(1, topic="u")
    desk.passes(20 * MINUTE_MS)
    assert (meter.offsets_deleted, meter.offsets_expired) == (3, 1)


def test_transactions_are_counted_by_how_they_ended() -> None:
    # Each is counted once, however often a client asks. Aborts by the coordinator are counted separately.
    stage = transaction_scripts.play("""
        a inits timeout=15000 | Empty 100/0; a: 100/0
        a adds p0             | Ongoing 100/0 p0; a: done
        a commits             | PrepareCommit 100/1 p0; markers commit 100/1 p0; a: 100/1
        markers land          | CompleteCommit 100/1
        a adds p0             | Ongoing 100/1 p0; a: done
        a aborts              | PrepareAbort 100/2 p0; markers abort 100/2 p0; a: 100/2
        markers land          | CompleteAbort 100/2
        a adds p0             | Ongoing 100/2 p0; a: done
        20001 ms pass         | PrepareAbort 100/3 p0; markers abort 100/3 p0
        markers land          | CompleteAbort 100/3
        b inits               | Empty 100/4; b: 100/4
        b adds p0             | Ongoing 100/4 p0; b: done
        c inits               | PrepareAbort 100/5 p0; markers abort 100/5 p0; c: CONCURRENT_TRANSACTIONS
        c inits               | c: CONCURRENT_TRANSACTIONS
    """)
    meter = stage.meters.transactions
    assert (meter.committed, meter.aborted, meter.timed_out, meter.fenced) == (1, 1, 1, 1)
