"""A leader that only the store cannot reach: it is deposed, answers its clients at once, and comes back by itself."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, cast

from ottla.cluster.changes import Change, RegisterBroker
from ottla.cluster.image import Image, PartitionImage
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest, TopicData
from tests.simulation import admin
from tests.simulation.channel import Channel
from tests.simulation.cluster import SESSION_TIMEOUT_S, LeaderRoute, SimulatedCluster
from tests.simulation.loop import simulate
from tests.simulation.world import Machine, World

TOPIC = TopicPartition("ledger", 0)
PATIENCE_S = 60.0
PRODUCE_VERSION = 12
CLIENT = "client"


def play(script: Callable[["Trial"], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World(1)
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
        self.cluster = SimulatedCluster(world, {"auto.leader.rebalance.enable": "false"})
        self.cluster.is_in_trouble = False
        self.store = self.cluster.store
        self.leader: Machine
        self.channel: Channel

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
        return self.cluster.machines.index(self.leader) + 1

    @property
    def witness(self) -> Machine:
        return next(machine for machine in self.cluster.machines if machine is not self.leader)

    def state_at(self, machine: Machine) -> PartitionImage:
        assert machine.process is not None
        state = machine.process.broker.node.metadata.image.partition(*TOPIC)
        return state or PartitionImage((), (), -1)

    async def produce(self, timeout_ms: int = 30_000) -> PartitionResult:
        records = memoryview(batch.encode([(None, b"value", (), self.leader.clock.now_ms())]))
        data = TopicData(name=TOPIC.topic, partitions=[PartitionData(TOPIC.partition, records)])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=timeout_ms, topics=[data])
        waiting = self.channel.produce(request, PRODUCE_VERSION)
        assert waiting is not None
        frame = await waiting
        assert frame is not None, "the connection broke"
        return self.channel.read_produced(frame, PRODUCE_VERSION).topics[0].partitions[0]

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


def test_a_deposed_leader_answers_producers_that_wait() -> None:
    async def script(trial: Trial) -> None:
        await trial.depose()
        assert trial.state_at(trial.leader).leader == trial.leader_id, "it cannot know"
        async with asyncio.timeout(SESSION_TIMEOUT_S):
            assert (await trial.produce()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(script)


def test_a_deposed_leader_sends_its_clients_elsewhere() -> None:
    async def script(trial: Trial) -> None:
        groups = {f"group-{number}": await trial.find_coordinator(f"group-{number}") for number in range(20)}
        group = next(group for group, found in groups.items() if found.node_id == trial.leader_id)
        await trial.depose()
        assert (await trial.produce()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = await trial.channel.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC.topic)]), 12)
        partition = answer.topics[0].partitions[0]
        assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
        assert {broker.node_id for broker in answer.brokers} == {1, 2, 3} - {trial.leader_id}
        assert (await trial.find_coordinator(group)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(script)


def test_it_comes_back_with_one_registration() -> None:
    async def script(trial: Trial) -> None:
        assert trial.witness.process is not None
        epochs: list[int] = []

        def note_registrations(before: Image, after: Image, changes: Sequence[Change]) -> None:
            epochs.extend(after.version for change in changes if isinstance(change, RegisterBroker))

        trial.witness.process.broker.node.metadata.on_change(note_registrations)
        await trial.depose()
        assert (await trial.produce()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        trial.store.heal(trial.leader.name)
        await trial.wait_until(lambda: len(trial.state_at(trial.witness).isr) == 3)
        await asyncio.sleep(2 * SESSION_TIMEOUT_S)
        assert len(epochs) == 1

    play(script)


def test_a_leader_that_nobody_can_tell_anything_does_not_keep_its_producers() -> None:
    async def script(trial: Trial) -> None:
        for machine in trial.cluster.machines:
            if machine is not trial.leader:
                trial.leader.world.network.partition(trial.leader.name, machine.name)
        assert (await trial.produce(timeout_ms=1000)).error_code == ErrorCode.REQUEST_TIMED_OUT
        await trial.depose()
        result = await trial.produce(timeout_ms=1000)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader_id == -1, "it must not name itself"

    play(script)


def test_a_leader_goes_on_while_the_store_is_away_for_all() -> None:
    async def script(trial: Trial) -> None:
        trial.store.stop()
        for _ in range(10):
            await asyncio.sleep(SESSION_TIMEOUT_S)
            assert (await trial.produce()).error_code == ErrorCode.NONE

    play(script)
