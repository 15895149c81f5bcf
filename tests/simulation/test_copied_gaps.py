"""Brokers are killed soon after they have copied a compacted log: its gaps are not taken for losses."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.records import batch
from ottla.replication.partition import Partition
from ottla.topic_partition import TopicPartition
from tests.simulation import admin
from tests.simulation.cluster import LeaderRoute, SimulatedCluster
from tests.simulation.history import Ending
from tests.simulation.loop import simulate
from tests.simulation.world import Machine, World
from tests.unit.storage.logs import values

TABLE = TopicPartition("table", 0)
SETTINGS = {"cleanup.policy": "compact", "internal.segment.bytes": "100"}
PATIENCE_S = 60.0
"""Virtual seconds."""


def encode(value: bytes, offset: int, epoch: int) -> bytearray:
    data = bytearray(batch.encode([(value, value, (), 1)]))
    batch.stamp(data, offset, epoch)
    return data


def find_replica(machine: Machine) -> Partition | None:
    assert machine.process is not None
    return machine.process.broker.node.replicas.of_topic(TABLE.topic).get(TABLE.partition)


def list_replicas(cluster: SimulatedCluster) -> list[Partition]:
    return [replica for machine in cluster.up if (replica := find_replica(machine)) is not None]


async def wait_for(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_true():
            await asyncio.sleep(0.01)


async def start(cluster: SimulatedCluster) -> Partition:
    """Returns the leader, with all replicas in sync."""
    for machine in cluster.machines:
        assert await machine.start()
    random = cluster.world.random("creation")
    await admin.create_topic(LeaderRoute(cluster, None, random), TABLE.topic, 1, SETTINGS, random, replicas=3)  # type: ignore[arg-type]
    return await find_leader(cluster)


async def find_leader(cluster: SimulatedCluster) -> Partition:
    def leaders() -> list[Partition]:
        return [each for each in list_replicas(cluster) if each.is_leader and each.state and len(each.state.isr) == 3]

    await wait_for(lambda: bool(leaders()))
    return leaders()[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_gap_between_segments_that_followers_have_copied_is_no_loss(seed: int) -> None:
    async def main() -> None:
        world = World(seed)
        cluster = SimulatedCluster(world, {})
        cluster.is_in_trouble = False
        leader = await start(cluster)
        for offset in (0, 2, 3):  # as compaction leaves them
            leader.log.append_as_follower(encode(b"%d" % offset, offset, leader.leader_epoch), 1)
        leader.append(memoryview(data := encode(b"4", 0, 0)), batch.check(data), 1, -1)
        await wait_for(lambda: all(each.high_watermark.value == 5 for each in list_replicas(cluster)))
        for machine in cluster.machines:
            machine.crash(Ending.KILL)
        for machine in cluster.machines:
            assert await machine.start()
        leader = await find_leader(cluster)
        assert values(leader.log) == [b"0", b"2", b"3", b"4"]
        for machine in cluster.machines:
            machine.crash(Ending.KILL)
        assert not world.surprises
        world.close()

    simulate(main())
