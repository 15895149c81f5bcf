"""Logs that diverged become equal again, also with the help of a leader that had a part in several epochs."""

import asyncio

from tests.simulation.loop import simulate
from tests.unit.replication.small_cluster import SmallCluster, read


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
