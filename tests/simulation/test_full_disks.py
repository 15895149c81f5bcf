"""A broker of a cluster whose disk is full: others take over, and it comes back by itself when there is room."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

from ottla.cluster.entities import PartitionImage
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.replication.full_disks import LEADS_ON_S
from ottla.replication.partition import Partition
from ottla.topic_partition import TopicPartition
from tests.simulation import admin
from tests.simulation.cluster import LeaderRoute, SimulatedCluster
from tests.simulation.history import Ending
from tests.simulation.loop import simulate
from tests.simulation.world import Machine, World

ORDERS = TopicPartition("orders", 0)
PATIENCE_S = 60.0
"""Virtual seconds."""
LAG_S = 30.0
"""replica.lag.time.max.ms: after this time a follower that copies nothing leaves the ISR without a full disk too."""


class Cluster(SimulatedCluster):
    """Three brokers that know a topic of one partition, of which every replica is in sync."""

    async def start(self) -> None:
        self.is_in_trouble = False
        for machine in self.machines:
            assert await machine.start()
        route = LeaderRoute(self, None, self.world.random("route"))
        settings = {"min.insync.replicas": "2", "flush.messages": "1"}
        random = self.world.random("creation")
        await admin.create_topic(route, ORDERS.topic, 1, settings, random, replicas=3)  # type: ignore[arg-type]
        await self.wait_for(lambda: all(self.find_state(each) is not None for each in self.machines))
        await self.wait_for(lambda: len(self.state.isr) == 3)

    def find_state(self, machine: Machine) -> PartitionImage | None:
        assert machine.process is not None
        return machine.process.broker.node.metadata.image.partition(*ORDERS)

    @property
    def state(self) -> PartitionImage:
        """As the broker knows it that has seen the most."""
        states = [state for machine in self.machines if (state := self.find_state(machine)) is not None]
        return max(states, key=lambda state: state.partition_epoch)

    @property
    def leader(self) -> Machine:
        return self.machines[self.state.leader - 1]

    def replica(self, machine: Machine) -> Partition:
        assert machine.process is not None
        return machine.process.broker.node.replicas.get(*ORDERS)

    async def wait_for(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_true():
                await asyncio.sleep(0.01)

    async def produce(self) -> ErrorCode:
        """One record with acks=all to the leader."""
        data = memoryview(bytearray(batch.encode([(None, b"value", (), 1)])))
        partition = self.replica(self.leader)
        try:
            acks = partition.wait_for_acks(partition.append(data, batch.check(data), 1, -1), -1)
            if acks is not None:
                await acks
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    async def produce_until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_true():
                await self.produce()
                await asyncio.sleep(0.05)


def fill(machine: Machine) -> None:
    for operation in ("append", "create", "write_at"):
        machine.disk.fail(operation, errno.ENOSPC, "*/orders-0/*", times=None)


def run(play: Callable[[Cluster], Awaitable[None]]) -> None:
    async def scenario() -> None:
        world = World(1)
        cluster = Cluster(world, {})
        await cluster.start()
        await play(cluster)
        for machine in cluster.machines:
            machine.crash(Ending.KILL)
        assert not world.surprises
        world.close()

    simulate(scenario())


def test_a_leader_on_a_full_disk_gives_way_and_comes_back() -> None:
    async def play(cluster: Cluster) -> None:
        loop, full, leader = cluster.world.loop, cluster.leader, cluster.state.leader
        assert await cluster.produce() == ErrorCode.NONE
        fill(full)
        begin = loop.time()
        assert await cluster.produce() == ErrorCode.KAFKA_STORAGE_ERROR
        await cluster.wait_for(lambda: cluster.leader is not full)
        assert leader not in cluster.state.isr
        await cluster.produce_until(lambda: cluster.replica(cluster.leader).high_watermark.value >= 3)
        assert loop.time() - begin < 2, "nobody waits for the broker whose disk is full"
        full.disk.heal()
        await cluster.wait_for(lambda: leader in cluster.state.isr)

    run(play)


def test_a_follower_on_a_full_disk_leaves_the_isr_at_once() -> None:
    async def play(cluster: Cluster) -> None:
        loop, before = cluster.world.loop, cluster.state
        follower = next(member for member in before.isr if member != before.leader)
        fill(cluster.machines[follower - 1])
        begin = loop.time()
        assert await cluster.produce() == ErrorCode.NONE
        assert loop.time() - begin < 2 < LAG_S
        assert follower not in cluster.state.isr and cluster.state.leader_epoch == before.leader_epoch
        cluster.machines[follower - 1].disk.heal()
        await cluster.wait_for(lambda: follower in cluster.state.isr)

    run(play)


def test_leadership_does_not_go_round_when_every_disk_is_full() -> None:
    async def play(cluster: Cluster) -> None:
        loop, epoch = cluster.world.loop, cluster.state.leader_epoch
        for machine in cluster.machines:
            fill(machine)
        end = loop.time() + LEADS_ON_S - 1
        while loop.time() < end:
            assert await cluster.produce() != ErrorCode.NONE
            await asyncio.sleep(0.1)
        assert cluster.state.leader > 0 and cluster.state.leader_epoch - epoch <= len(cluster.machines)
        for machine in cluster.machines:
            machine.disk.heal()
        await cluster.wait_for(lambda: len(cluster.state.isr) == 3)
        assert await cluster.produce() == ErrorCode.NONE

    run(play)
