"""Deleted keys stay deleted, on every replica (hard case 29).

Compaction removes a tombstone when every replica has it. A replica that has the value and not the tombstone all the
same begins anew: it lost the tombstone in a power cut, was no replica at the time, or copied the value from another
leader.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ottla.cluster.image import PartitionImage
from ottla.records import batch
from tests.simulation.loop import simulate
from tests.unit.replication.small_cluster import SmallBroker, SmallCluster, put
from tests.unit.storage.cleaner.compactions import carry_out, compact, contents, order_for

DAY = 86_400_000
COMPACTED = {"cleanup.policy": "compact"}


def make_slow_cluster() -> SmallCluster:
    """A copy takes many fetches."""
    return SmallCluster(1, 2, 3, topic=COMPACTED, replica_fetch_max_bytes="200", replica_fetch_wait_max_ms="50")


def clean(broker: SmallBroker) -> None:
    """Compact until tombstones that every replica has are gone."""
    partition, now_ms = broker.partition(), broker.clock.now_ms()
    for day in (0, 2, 4):
        compact(
            broker.disk,
            partition.log,
            now_ms=now_ms + day * DAY,
            delete_retention_ms=DAY,
            keep_deletes_from=partition.copied_by_all,
        )


def teach(cluster: SmallCluster, state: PartitionImage, learners: Sequence[int] = (1, 2, 3)) -> None:
    cluster.states[0] = state
    for broker_id in learners:
        cluster[broker_id].learn(0, state)


def latest(broker: SmallBroker) -> dict[str, str | None]:
    values = {key: value for _, key, value in contents(broker.log())}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_lost_a_tombstone_in_a_power_cut_brings_no_key_back(seed: int) -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3, topic=COMPACTED)
        state = cluster.elect(1)
        put(cluster[1], ("k", "value"))
        await cluster.wait_for_copies()
        cluster[3].log().flush()  # the value, and not the tombstone
        put(cluster[1], ("k", None))
        put(cluster[1], ("other", "x"))
        await cluster.wait_for_copies()
        await asyncio.sleep(1)
        cluster[3].disk.random.seed(seed)
        cluster[3].die(lose_unsynced=True)
        state = replace(state, isr=(1, 2), partition_epoch=1)
        teach(cluster, state, (1, 2))
        clean(cluster[1])
        assert latest(cluster[1]) == {"other": "x"}
        put(cluster[1], ("other", "y"))
        cluster.epochs[3] += 1
        cluster[3].restart()
        cluster[3].learn(0, state)
        await cluster.wait_for_copies()
        assert latest(cluster[3]) == {"other": "y"}
        await cluster.close()

    simulate(main())


def test_a_replica_that_was_moved_away_and_back_while_it_was_down_brings_no_key_back() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3, topic=COMPACTED)
        state = cluster.elect(1)
        put(cluster[1], ("k", "value"))
        await cluster.wait_for_copies()
        cluster[3].die()
        state = replace(state, replicas=(1, 2), isr=(1, 2), leader_epoch=1, partition_epoch=1)
        teach(cluster, state, (1, 2))
        put(cluster[1], ("k", None))
        put(cluster[1], ("other", "x"))
        await cluster.wait_for(lambda: cluster[2].log().end_offset == 3)
        await asyncio.sleep(1)
        clean(cluster[1])
        cluster.epochs[3] += 1
        cluster[3].restart()  # its directory has the right topic id
        teach(cluster, replace(state, replicas=(1, 2, 3), adding=(3,), partition_epoch=2))
        put(cluster[1], ("other", "y"))
        await cluster.wait_for_copies()
        assert latest(cluster[3]) == {"other": "y"}
        await cluster.close()

    simulate(main())


async def begin_first_copy(cluster: SmallCluster) -> PartitionImage:
    """Broker 3 has copied a value from broker 1, but not its tombstone, which broker 2 does not have any more."""
    state = replace(cluster.elect(2, isr=(1, 2), learners=()), replicas=(1, 2))
    teach(cluster, state, (1, 2))
    put(cluster[2], ("k", "value"))
    for number in range(100):
        put(cluster[2], (f"filler {number}", "x"))
    put(cluster[2], ("k", None))
    put(cluster[2], ("end", "x"))
    await cluster.wait_for(lambda: cluster[1].log().end_offset == 103)
    await asyncio.sleep(1)
    clean(cluster[2])
    assert "k" not in latest(cluster[2]) and cluster[2].log().removed_deletes.before == 102
    state = replace(state, replicas=(1, 2, 3), adding=(3,), leader=1, leader_epoch=1, partition_epoch=1)
    teach(cluster, state)
    await cluster.wait_for(lambda: cluster[3].log().end_offset > 10)
    assert cluster[3].log().end_offset < 90 and "k" in latest(cluster[3])
    return state


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_first_copy_begins_anew_with_a_leader_that_lacks_tombstones(is_restarted: bool) -> None:
    async def main() -> None:
        cluster = make_slow_cluster()
        state = await begin_first_copy(cluster)
        state = replace(state, leader=2, leader_epoch=2, partition_epoch=2)
        if is_restarted:
            cluster[3].die()
        teach(cluster, state, (1, 2) if is_restarted else (1, 2, 3))
        if is_restarted:
            cluster[3].restart()
            cluster[3].learn(0, state)
        put(cluster[2], ("end", "y"))
        await cluster.wait_for_copies()
        assert latest(cluster[3]) == latest(cluster[2])
        assert cluster[3].fetchers.truncations.count == 1
        await cluster.close()

    simulate(main())


def restart_follower(cluster: SmallCluster, state: PartitionImage) -> PartitionImage:
    cluster[3].die()
    cluster.epochs[3] += 1
    cluster[3].restart()
    cluster[3].learn(0, state)
    return state


def lead_in_another_epoch(cluster: SmallCluster, state: PartitionImage) -> PartitionImage:
    state = replace(state, leader_epoch=2, partition_epoch=2)
    teach(cluster, state)
    return state


@pytest.mark.parametrize("event", [restart_follower, lead_in_another_epoch])
def test_a_first_copy_goes_on_with_a_leader_that_has_all_tombstones(
    event: Callable[[SmallCluster, PartitionImage], PartitionImage],
) -> None:
    async def main() -> None:
        cluster = make_slow_cluster()
        event(cluster, await begin_first_copy(cluster))
        await cluster.wait_for_copies()
        assert latest(cluster[3]) == latest(cluster[1])
        assert cluster[3].fetchers.truncations.count == 0
        await cluster.close()

    simulate(main())


def test_a_first_copy_goes_on_after_a_restart_where_tombstones_are_missing() -> None:
    # The same leader in the same epoch has seen it copy from the beginning, and has removed nothing since.
    async def main() -> None:
        cluster = make_slow_cluster()
        state = await begin_first_copy(cluster)
        state = replace(state, leader=2, leader_epoch=2, partition_epoch=2)
        teach(cluster, state)
        await cluster.wait_for(lambda: cluster[3].fetchers.truncations.count == 1)
        await cluster.wait_for(lambda: 10 < cluster[3].log().end_offset < 80)
        restart_follower(cluster, state)
        await cluster.wait_for_copies()
        assert latest(cluster[3]) == latest(cluster[2])
        assert cluster[3].fetchers.truncations.count == 0, "in this life"
        assert cluster[3].log().removed_deletes.before > 0, "it lacks what its leader lacks"
        await cluster.close()

    simulate(main())


def test_a_first_copy_begins_anew_if_its_leader_removes_tombstones_meanwhile() -> None:
    # The compaction had begun before the replica was added, so it does not spare what the new replica lacks.
    async def main() -> None:
        cluster = make_slow_cluster()
        state = replace(cluster.elect(1, isr=(1, 2), learners=()), replicas=(1, 2))
        teach(cluster, state, (1, 2))
        put(cluster[1], ("k", "value"))
        for number in range(100):
            put(cluster[1], (f"filler {number}", "x"))
        put(cluster[1], ("k", None))
        put(cluster[1], ("end", "x"))
        await cluster.wait_for(lambda: cluster[1].partition().copied_by_all == 103)
        log, now_ms = cluster[1].log(), cluster[1].clock.now_ms()
        compact(cluster[1].disk, log, now_ms=now_ms, delete_retention_ms=-DAY, keep_deletes_from=0)
        log.first_dirty_offset = 0
        order = order_for(log, now_ms=now_ms, keep_deletes_from=103)
        teach(cluster, replace(state, replicas=(1, 2, 3), adding=(3,), partition_epoch=1))
        await cluster.wait_for(lambda: 10 < cluster[3].log().end_offset < 90)
        carry_out(cluster[1].disk, log, order)
        assert log.removed_deletes.before == 102
        put(cluster[1], ("end", "y"))
        await cluster.wait_for_copies()
        assert latest(cluster[3]) == latest(cluster[1])
        await cluster.close()

    simulate(main())


def test_a_replica_that_lost_a_marker_in_a_power_cut_has_no_transaction_open_for_ever() -> None:
    async def main() -> None:
        cluster = SmallCluster(1, 2, 3, topic=COMPACTED)
        state = cluster.elect(1)
        put(cluster[1], ("k", "value"), producer_id=7, epoch=0, sequence=0, transactional=True)
        await cluster.wait_for_copies()
        cluster[3].log().flush()
        now_ms = cluster[1].clock.now_ms()
        marker = memoryview(batch.encode_control(7, 1, True, 0, now_ms))
        cluster[1].partition().append(marker, batch.read_header(marker), now_ms, 1)
        put(cluster[1], ("k", "newer"))
        put(cluster[1], ("other", "x"))
        await cluster.wait_for_copies()
        await asyncio.sleep(1)
        cluster[3].die(lose_unsynced=True)
        state = replace(state, isr=(1, 2), partition_epoch=1)
        teach(cluster, state, (1, 2))
        cluster[1].log().producers.producers.clear()  # as after producer.id.expiration.ms
        clean(cluster[1])
        put(cluster[1], ("other", "y"))
        cluster.epochs[3] += 1
        cluster[3].restart()
        cluster[3].learn(0, state)
        await cluster.wait_for_copies()
        end = cluster[3].log().end_offset
        assert cluster[3].log().last_stable_offset(end) == end
        await cluster.close()

    simulate(main())


def test_a_replica_in_sync_is_not_emptied_although_the_leader_does_not_know_which_tombstones_it_lacks() -> None:
    """As after a restart of a leader that cannot read what it has written about that. The other one may be elected at
    any moment, and has all that was committed."""

    async def main() -> None:
        cluster = SmallCluster(1, 2, topic=COMPACTED)
        cluster.elect(1)
        put(cluster[1], ("k", "value"))
        await cluster.wait_for_copies()
        cluster.network.partition("b1", "b2")
        put(cluster[1], ("other", "x"))
        cluster[1].log().removed_deletes.note(2)
        cluster.network.heal_all()
        await cluster.wait_for_copies()
        assert cluster[2].fetchers.truncations.count == 0
        await cluster.close()

    simulate(main())


def test_what_the_leader_has_deleted_brings_no_key_back_either() -> None:
    """The replica ends where the leader's log starts. It is killed before a checkpoint has its new log start."""

    async def main() -> None:
        cluster = SmallCluster(1, 2, topic={"cleanup.policy": "compact,delete"})
        cluster.elect(1)
        put(cluster[1], ("k", "value"))
        await cluster.wait_for_copies()
        cluster[2].fetchers.leave(cluster[2].partition())
        state = cluster.elect(1, isr=(1,), epoch=0, learners=(1,))
        put(cluster[1], ("k", None))
        put(cluster[1], ("other", "x"))
        cluster[1].partition().delete_records(1)
        cluster[1].log().removed_deletes.note(2)
        cluster[2].learn(0, state)
        await cluster.wait_for_copies()
        cluster[2].die()
        cluster[2].restart()
        assert cluster[2].log().log_start_offset == 1
        await cluster.close()

    simulate(main())
