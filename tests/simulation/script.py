"""Three whole brokers in a simulation for a script: faults at exact moments, instead of by a seed.

async def script(trial: Trial) -> None:
    trial.store.cut(trial.leader.name)
    ...

play(script)
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

from ottla.cluster.image import PartitionImage
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest, TopicData
from tests.simulation import admin
from tests.simulation.channel import Channel
from tests.simulation.cluster import LeaderRoute, SimulatedCluster
from tests.simulation.consumer import read_log
from tests.simulation.history import token
from tests.simulation.loop import simulate
from tests.simulation.world import Machine, World

TOPIC = TopicPartition("ledger", 0)
PATIENCE_S = 60.0
LAG_S = 1.0
SETTINGS = {"auto.leader.rebalance.enable": "false", "replica.lag.time.max.ms": str(round(LAG_S * 1000))}
PRODUCE_VERSION = 12
CLIENT = "client"


def play(script: Callable[["Trial"], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    async def main() -> None:
        world = World(seed)
        try:
            trial = Trial(world)
            await trial.start()
            await script(trial)
            assert not world.surprises
        finally:
            world.close()

    simulate(main())


class Trial:
    """Three brokers, a topic with three replicas, and its leader, to which a client keeps a connection."""

    def __init__(self, world: World) -> None:
        self.cluster = SimulatedCluster(world, SETTINGS)
        self.cluster.is_in_trouble = False
        self.store = self.cluster.store
        self.leader: Machine
        self.channel: Channel
        self.acknowledged: list[bytes] = []
        """Tokens of the records that were acknowledged, as in a history."""
        self._produced = 0

    async def start(self) -> None:
        await asyncio.gather(*(machine.start() for machine in self.cluster.machines))
        random = Random(1)
        route = cast(Machine, LeaderRoute(self.cluster, None, random))
        await admin.create_topic(route, TOPIC.topic, 1, {"min.insync.replicas": "2"}, random, replicas=3)
        await self.wait_until(lambda: all(len(self.state_at(each).isr) == 3 for each in self.cluster.machines))
        leader = self.cluster.find_leader(TOPIC, random)
        assert leader is not None
        self.leader = leader
        self.channel = await Channel.open(CLIENT, leader)
        assert (await self.produce()).error_code == ErrorCode.NONE

    @property
    def leader_id(self) -> int:
        return self.id_of(self.leader)

    @property
    def followers(self) -> list[Machine]:
        return [machine for machine in self.cluster.machines if machine is not self.leader]

    @property
    def witness(self) -> Machine:
        return self.followers[0]

    def id_of(self, machine: Machine) -> int:
        return self.cluster.machines.index(machine) + 1

    def cut_off(self, machine: Machine) -> None:
        """Let nothing through between a broker and the others. The store still reaches it."""
        for other in self.cluster.machines:
            if other is not machine:
                machine.world.network.partition(machine.name, other.name)

    def state_at(self, machine: Machine) -> PartitionImage:
        assert machine.process is not None
        state = machine.process.broker.node.metadata.image.partition(*TOPIC)
        return state or PartitionImage((), (), -1)

    def is_unfenced(self, machine: Machine) -> bool:
        """Whether the leader knows that the broker serves."""
        assert self.leader.process is not None
        return self.leader.process.broker.node.metadata.image.serves(self.id_of(machine))

    async def produce(self, timeout_ms: int = 30_000) -> PartitionResult:
        """Send a record with acks=all on the connection to the leader."""
        self._produced += 1
        value = b"%d" % self._produced
        records = memoryview(batch.encode([(None, value, (), self.leader.clock.now_ms())]))
        data = TopicData(name=TOPIC.topic, partitions=[PartitionData(TOPIC.partition, records)])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=timeout_ms, topics=[data])
        waiting = self.channel.produce(request, PRODUCE_VERSION)
        assert waiting is not None
        frame = await waiting
        assert frame is not None, "the connection broke"
        result = self.channel.read_produced(frame, PRODUCE_VERSION).topics[0].partitions[0]
        if result.error_code == ErrorCode.NONE:
            self.acknowledged.append(token(value))
        return result

    async def depose(self) -> None:
        """Cut the leader off from the store, until another broker leads."""
        self.store.cut(self.leader.name)
        await self.wait_until(lambda: self.state_at(self.witness).leader != self.leader_id)

    async def find_coordinator(self, group: str) -> Coordinator:
        answer = await self.channel.call(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        found: Coordinator = answer.coordinators[0]
        return found

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_true():
                await asyncio.sleep(0.01)

    async def end_in_peace(self) -> tuple[bytes, ...]:
        """End all faults, start brokers that are down, and read what the partition holds when all are in sync."""
        self.store.fate = None
        self.leader.world.network.heal_all()
        for machine in self.cluster.machines:
            self.store.heal(machine.name)
            if machine.process is None:
                await machine.start()
        await self.wait_until(lambda: all(len(self.state_at(each).isr) == 3 for each in self.cluster.machines))
        leader = self.cluster.find_leader(TOPIC, Random(1))
        assert leader is not None
        _, records = await read_log(leader, TOPIC)
        return tuple(value for _, value in records)
