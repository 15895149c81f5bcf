"""One seed of transactions in a cluster of whole brokers: producers, coordinators and leaders on different brokers.

The same promises as with one broker (`transactor`): every transaction is there as a whole or not at all, as its
producer was told, once and in order, and so is the offset that it committed. What a reader of committed records was
shown is still there in the end, and nobody waits for ever.
"""

import asyncio
from random import Random
from typing import Any, cast

from ottla.cluster.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.coordinators.internal_topics import key_hash
from ottla.topic_partition import TopicPartition
from ottla.wire.message import Message
from ottla.wire.messages.offset_fetch import OffsetFetchRequest
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.simulation import admin
from tests.simulation.channel import Channel
from tests.simulation.cluster import LeaderRoute, SimulatedCluster
from tests.simulation.cluster_scenario import LIMIT_S, POLL_S, SETTLING_S, broker_settings
from tests.simulation.cluster_trouble import ClusterTrouble
from tests.simulation.loop import simulate
from tests.simulation.peace import finish
from tests.simulation.scenario import Verdict
from tests.simulation.transactional_client import TransactionalClient
from tests.simulation.transactor import GROUP, CommittedReader, Ledger, Transactor, problems_of
from tests.simulation.world import Machine, World

LEDGERS, OUTPUT = "ledgers", "output"
LEDGERS_MAX = 2
OUTPUTS = 2
INTERNAL_PARTITIONS = 2
TRANSACTIONS_MAX = 12


def run(seed: int, *, trace_lines: int | None = 200) -> Verdict:
    return simulate(_run(seed, trace_lines))


async def _run(seed: int, trace_lines: int | None) -> Verdict:
    world = World(seed, trace_lines=trace_lines)
    try:
        scenario = ClusterTransactions(world)
        problems = []
        try:
            async with asyncio.timeout(LIMIT_S):
                await scenario.play()
            problems = scenario.find_problems()
        except Exception as error:
            problems.append(f"STUCK: {error!r}")
        problems += [f"SURPRISE {surprise}" for surprise in world.surprises]
        deeds = sum(len(ledger.deeds) for ledger in scenario.ledgers)
        lives = sum(machine.life for machine in scenario.cluster.machines)
        return Verdict(seed, world.trace.digest, problems, deeds, lives, list(world.trace.lines))
    finally:
        world.close()


class Routing(TransactionalClient):
    """Sends each request to the leader of the partition that it is about, or that its coordinator is the leader of."""

    cluster: SimulatedCluster
    _target: TopicPartition | None = None
    _channels: dict[TopicPartition, Channel]
    _guesses: Random

    def take_routes(self, cluster: SimulatedCluster) -> None:
        self.cluster, self._channels = cluster, {}
        self._guesses = cluster.world.random(f"route of {self.name}")

    async def connect(self) -> Channel:
        assert self._target is not None
        target = self._target
        route = LeaderRoute(self.cluster, target, self._guesses)
        while (channel := self._channels.get(target)) is None or channel.lost:
            try:
                self._channels[target] = await Channel.open(self.name, cast(Machine, route))
            except OSError:
                await self.pause()
        return channel

    async def pause(self) -> None:
        """Before the same request is sent again, find the leader anew."""
        channel = None if self._target is None else self._channels.pop(self._target, None)
        if channel is not None and not channel.lost:
            channel.close()
        await super().pause()

    async def ask(self, message: Message, version: int) -> Any:
        if isinstance(message, OffsetFetchRequest | TxnOffsetCommitRequest):
            self._target = TopicPartition(CONSUMER_OFFSETS, key_hash(GROUP) % INTERNAL_PARTITIONS)
        else:
            self._target = TopicPartition(TRANSACTION_STATE, key_hash(self.transactional_id) % INTERNAL_PARTITIONS)
        return await super().ask(message, version)

    async def _is_written(self, partition: TopicPartition, data: bytearray, version: int) -> bool:
        self._target = partition
        return await super()._is_written(partition, data, version)

    async def read_some(self, partition: TopicPartition, offset: int) -> tuple[list[bytes], int, int]:
        self._target = partition
        return await super().read_some(partition, offset)


class ClusterTransactor(Routing, Transactor):
    pass


class ClusterReader(Routing, CommittedReader):
    pass


class ClusterTransactions:
    def __init__(self, world: World) -> None:
        self.world = world
        self._random = world.random("scenario")
        self.cluster = SimulatedCluster(world, settings_of(self._random))
        self.ledgers = [
            Ledger(f"writer-{index}", TopicPartition(LEDGERS, index))
            for index in range(self._random.randint(1, LEDGERS_MAX))
        ]
        self._outputs = [TopicPartition(OUTPUT, index) for index in range(OUTPUTS)]
        self._readers: list[ClusterReader] = []
        self._found: dict[TopicPartition, list[bytes]] = {}
        self._offsets: dict[str, int] = {}

    def _route(self) -> Machine:
        return cast(Machine, LeaderRoute(self.cluster, None, self.world.random("route of the admin")))

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        trouble = ClusterTrouble(self.cluster, [admin.HOST], self.world.random("trouble"))
        reviving = [
            loop.create_task(trouble.revive(machine), name=f"reviving {machine.name}")
            for machine in self.cluster.machines
        ]
        while len(self.cluster.up) < len(self.cluster.machines):
            await asyncio.sleep(POLL_S)
        settings = {"retention.ms": "-1", "min.insync.replicas": "2"}
        for name, count in ((LEDGERS, LEDGERS_MAX), (OUTPUT, OUTPUTS)):
            await admin.create_topic(self._route(), name, count, settings, self._random, replicas=3)
        transactors = self._build_transactors()
        await self._begin()
        striking = loop.create_task(trouble.strike(), name="striking")
        trouble.clients += [each.name for each in transactors]
        reading = [loop.create_task(reader.run(), name=reader.name) for reader in self._readers]
        working = [
            loop.create_task(each.run(self._random.randint(1, TRANSACTIONS_MAX)), name=each.name)
            for each in transactors
        ]
        await asyncio.wait(working, timeout=self._random.choice((10, 30, 60)))
        trouble.stop()
        await finish([*working, striking])
        for reader in self._readers:
            reader.stopped = True
        await finish(reading)
        await self._settle()
        for task in reviving:
            task.cancel()
        await asyncio.wait(reviving)
        await finish([loop.create_task(self._read_final_state(), name="the last look")])

    async def _begin(self) -> None:
        """Create the internal topics before the trouble begins, with all replicas."""
        judge = self._client("first", "first")
        await judge.init()
        await judge.write(self._outputs[0], b"first:0")
        await judge.commit_offset(GROUP, self._outputs[0], 0)
        await judge.end(committed=False)

    def _client(self, name: str, transactional_id: str) -> Routing:
        client = Routing(name, self._route(), transactional_id, 2)
        client.take_routes(self.cluster)
        return client

    def _build_transactors(self) -> list[ClusterTransactor]:
        transactors = []
        for ledger in self.ledgers:
            for number in range(self._random.randint(1, 2)):
                name = f"{ledger.transactional_id}-{number}"
                transactor = ClusterTransactor(name, self._route(), ledger, self._outputs, self.world.random(name))
                transactor.take_routes(self.cluster)
                transactors.append(transactor)
            reader = ClusterReader(f"reader-{ledger.partition}", self._route(), ledger.partition)
            reader.take_routes(self.cluster)
            self._readers.append(reader)
        return transactors

    async def _settle(self) -> None:
        """Wait until all replicas are in sync, as every broker knows."""
        deadline = self.world.loop.time() + SETTLING_S
        while not self._is_settled():
            assert self.world.loop.time() < deadline, f"not in sync after {SETTLING_S:g} s"
            await asyncio.sleep(POLL_S)

    def _is_settled(self) -> bool:
        for machine in self.cluster.machines:
            if machine.process is None or not machine.up.is_set():
                return False
            for topic in machine.process.broker.node.metadata.image.topics():
                if any(state.leader < 0 or len(state.isr) < len(state.replicas) for state in topic.partitions):
                    return False
        return True

    async def _read_final_state(self) -> None:
        """Taking over each transactional id aborts the transaction that its last producer left open."""
        judge = self._client("judge", "judge")
        for ledger in self.ledgers:
            await self._client("judge", ledger.transactional_id).init()
        for partition in (*(ledger.partition for ledger in self.ledgers), *self._outputs):
            self._found[partition] = await judge.read_committed(partition)
        for ledger in self.ledgers:
            self._offsets[ledger.transactional_id] = await judge.stable_offset(GROUP, ledger.partition)

    def find_problems(self) -> list[str]:
        problems: list[str] = []
        for ledger in self.ledgers:
            problems += problems_of(ledger, self._found, self._offsets[ledger.transactional_id])
        for reader in self._readers:
            if reader.seen != self._found[reader.partition][: len(reader.seen)]:
                problems.append(f"SHOWN {reader.partition}: {reader.seen}, in the end {self._found[reader.partition]}")
        return problems


def settings_of(random: Random) -> dict[str, str]:
    return {
        **broker_settings(random),
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
        "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        **({"log.flush.interval.messages": "1"} if random.random() < 0.3 else {}),
    }
