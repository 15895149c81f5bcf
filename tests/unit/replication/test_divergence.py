"""Logs that diverged become equal again, also with the help of a leader that had a part in several epochs."""

import asyncio
from dataclasses import replace

import pytest

from tests.simulation.loop import simulate
from tests.unit.replication.small_cluster import SmallCluster, put, read
from tests.unit.storage.cleaner.compactions import compact, contents


def test_a_leader_that_led_before_without_a_record_knows_the_epochs_of_its_log() -> None:
    """It noted an epoch at its end, and copied records of an earlier epoch behind it from the next leader."""

    async def main() -> None:
        cluster = SmallCluster(1, 2, 3)
        cluster.elect(3)
        cluster[3].produce(b"common")  # epoch 0
        await cluster.wait_for_copies()
        cluster.network.partition("b1", "b3")
        cluster.network.partition("b2", "b3")
        cluster[3].produce(b"never copied")
        cluster[3].produce(b"never copied either")
        cluster.elect(1, isr=(1, 2), learners=(1, 2))
        for value in (b"1", b"2", b"3", b"4"):  # epoch 1
            acknowledged = cluster[1].partition().wait_for_acks(cluster[1].produce(value), -1)
            if acknowledged is not None:
                await acknowledged
        cluster.network.partition("b1", "b2")
        cluster[1].produce(b"5")
        cluster.elect(2, isr=(1, 2), learners=(2,))  # epoch 2, for a moment
        cluster.elect(1, isr=(1, 2), learners=(1, 2))  # epoch 3
        cluster.network.heal("b1", "b2")
        await cluster.wait_for(lambda: cluster[2].log().end_offset == cluster[1].log().end_offset)
        assert cluster[2].log().epochs.entries == [(0, 0), (1, 1)]
        cluster.network.heal_all()
        cluster.elect(2, isr=(2,))  # epoch 4
        cluster[2].produce(b"end")
        await cluster.wait_for_copies()
        await asyncio.sleep(1)
        expected = [b"common", b"1", b"2", b"3", b"4", b"5", b"end"]
        assert [value for _, _, value in read(cluster[3].log())] == expected
        assert read(cluster[3].log()) == read(cluster[2].log()) == read(cluster[1].log())
        await cluster.close()

    simulate(main())


def test_a_leader_that_copied_a_compacted_log_knows_epochs_without_records() -> None:
    """Otherwise it took an epoch for longer than it was, and a replica could keep a record that nobody else had."""

    async def main() -> None:
        cluster = SmallCluster(1, 2, 3, topic={"cleanup.policy": "compact"})
        state = replace(cluster.elect(3, learners=()), replicas=(1, 3), isr=(1, 3))
        for broker_id in (1, 3):
            cluster[broker_id].learn(0, state)
        put(cluster[3], ("first", "x"))
        await cluster.wait_for(lambda: cluster[1].log().end_offset == 1)
        cluster.network.partition("b1", "b3")
        put(cluster[3], ("never copied", "x"))
        for epoch, records in ((1, [("k", "1"), ("k", "2")]), (2, [("k", "3"), ("end", "x")])):
            state = replace(state, leader=1, isr=(1,), leader_epoch=epoch, partition_epoch=epoch)
            cluster[1].learn(0, state)
            for record in records:
                put(cluster[1], record)
        compact(cluster[1].disk, cluster[1].log())
        assert contents(cluster[1].log()) == [(0, "first", "x"), (3, "k", "3"), (4, "end", "x")]
        state = replace(state, replicas=(1, 2, 3), leader_epoch=3, partition_epoch=3)
        for broker_id in (1, 2):
            cluster[broker_id].learn(0, state)
        await cluster.wait_for(lambda: cluster[2].log().end_offset == cluster[1].log().end_offset)
        state = cluster.states[0] = replace(state, leader=2, isr=(1, 2), leader_epoch=4, partition_epoch=4)
        cluster.network.heal_all()
        for broker_id in (1, 2, 3):
            cluster[broker_id].learn(0, state)
        put(cluster[2], ("end", "y"))
        await cluster.wait_for_copies()
        await cluster.wait_for(lambda: contents(cluster[3].log()) == contents(cluster[2].log()))
        await cluster.close()

    simulate(main())


@pytest.mark.parametrize("extra", [0, 3])
def test_what_no_leader_has_does_not_come_back_with_an_old_log_start(extra: int) -> None:
    """The follower's log goes on to the leader's log start, or beyond it, with records that were never acknowledged."""

    async def main() -> None:
        cluster = SmallCluster(1, 2)
        cluster.elect(1)
        cluster[1].produce(b"common")
        await cluster.wait_for_copies()
        cluster.network.partition("b1", "b2")
        for number in range(5):
            cluster[1].produce(b"never copied %d" % number)
        cluster.elect(2, isr=(2,))  # the connection is cut: broker 1 cannot see where the logs diverge
        for number in range(8):
            cluster[2].produce(b"%d" % number)
        cluster[2].partition().delete_records(6 - extra)
        cluster.network.heal_all()
        await cluster.wait_for_copies()
        assert read(cluster[1].log()) == read(cluster[2].log())
        cluster[1].die()
        cluster[1].restart()  # before a checkpoint has the new log start
        assert {value for _, _, value in read(cluster[1].log())} <= {
            b"common",
            *[b"%d" % number for number in range(8)],
        }
        await cluster.close()

    simulate(main())
