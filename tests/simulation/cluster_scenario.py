"""One seed for a cluster of whole brokers, from beginning to verdict: topics, clients and trouble, then peace.

In the end every replica must be in sync, all replicas must hold the same records, and the checker judges the history of
the clients. Nothing is excused: a cluster with two replicas in sync loses nothing within the budget of its trouble.
"""

import asyncio
from random import Random
from typing import cast

from ottla.records.batch import headers
from ottla.storage.log import Log
from ottla.topic_partition import TopicPartition
from tests.simulation import admin, administrator
from tests.simulation.administrator import Administrator
from tests.simulation.checker import check
from tests.simulation.cluster import LeaderRoute, SimulatedCluster
from tests.simulation.cluster_trouble import ClusterTrouble
from tests.simulation.consumer import Consumer, read_log
from tests.simulation.history import Ended, History
from tests.simulation.loop import simulate
from tests.simulation.peace import finish
from tests.simulation.producer import Producer, Style
from tests.simulation.scenario import Verdict
from tests.simulation.world import Machine, World

TOPIC = "ledger"
SETTLING_S = 200.0
LIMIT_S = 1000.0
"""Virtual seconds for everything."""
POLL_S = 0.1
BATCHES_MAX = 60
ADMINISTERED = 0.3
"""The share of seeds in which the metadata is changed by requests too."""


def run(seed: int, *, trace_lines: int | None = 200) -> Verdict:
    return simulate(_run(seed, trace_lines))


async def _run(seed: int, trace_lines: int | None) -> Verdict:
    world = World(seed, trace_lines=trace_lines)
    try:
        scenario = ClusterScenario(world)
        problems = []
        try:
            async with asyncio.timeout(LIMIT_S):
                await scenario.play()
            problems = [str(violation) for violation in check(scenario.history)]
        except Exception as error:
            problems.append(f"STUCK: {error!r}")
        problems += scenario.problems
        problems += [f"SURPRISE {surprise}" for surprise in world.surprises]
        records = sum(map(len, scenario.history.final.values()))
        lives = sum(machine.life for machine in scenario.cluster.machines)
        return Verdict(seed, world.trace.digest, problems, records, lives, list(world.trace.lines))
    finally:
        world.close()


class ClusterScenario:
    def __init__(self, world: World) -> None:
        self.world = world
        self._random = world.random("scenario")
        self.cluster = SimulatedCluster(world, broker_settings(self._random))
        self.partitions = [TopicPartition(TOPIC, index) for index in range(self._random.randint(1, 3))]
        self.history = History(frozenset({TOPIC}), is_replicated=True)
        self.problems: list[str] = []
        self._administrator: Administrator | None = None

    def _route(self, partition: TopicPartition | None, name: str) -> Machine:
        """Clients of the simulation take a route for a machine: they use its name, life, clock and world."""
        return cast(Machine, LeaderRoute(self.cluster, partition, self.world.random(f"route of {name}")))

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        trouble = ClusterTrouble(self.cluster, [admin.HOST], self.world.random("trouble"))
        reviving = [
            loop.create_task(trouble.revive(machine), name=f"reviving {machine.name}")
            for machine in self.cluster.machines
        ]
        topic_id = await self._create_topic()
        striking = loop.create_task(trouble.strike(), name="striking")
        producers = [self._producer(number, topic_id) for number in range(self._random.randint(1, 4))]
        consumers = [self._consumer(number, topic_id) for number in range(self._random.randint(1, 2))]
        trouble.clients += [producer.name for producer in producers] + [consumer.name for consumer in consumers]
        administering = self._administer(trouble)
        working = [
            loop.create_task(producer.run(self._random.randint(1, BATCHES_MAX)), name=producer.name)
            for producer in producers
        ]
        reading = [loop.create_task(consumer.run(), name=consumer.name) for consumer in consumers]
        await asyncio.wait(working, timeout=self._random.choice((10, 30, 90)))
        trouble.stop()
        if self._administrator is not None:
            self._administrator.stopped = True
        await finish([*working, striking, *administering])
        await self._settle()
        for consumer in consumers:
            consumer.stopped = True
        await finish(reading)
        for task in reviving:
            task.cancel()
        await asyncio.wait(reviving)
        for partition in self.partitions:
            self.history.starts[partition], self.history.final[partition] = await self._read(partition)
        self._compare_replicas()
        if self._administrator is not None:
            self.problems += self._administrator.find_problems()
        self.history.events = [event for event in self.world.events if not isinstance(event, Ended)]

    def _administer(self, trouble: ClusterTrouble) -> list[asyncio.Task[None]]:
        random = self.world.random("administration")
        if random.random() >= ADMINISTERED:
            return []
        trouble.clients.append(administrator.HOST)
        self._administrator = Administrator(self.cluster, random)
        return [
            self.world.loop.create_task(self._administrator.run(machine), name=f"administrator of {machine.name}")
            for machine in self.cluster.machines
        ]

    async def _create_topic(self) -> bytes:
        settings = {"min.insync.replicas": "2", "retention.ms": "-1"}
        if self._random.random() < 0.3:
            settings["flush.messages"] = "1"
        random = self.world.random("creation")
        route = self._route(None, admin.HOST)
        return await admin.create_topic(route, TOPIC, len(self.partitions), settings, random, replicas=3)

    def _producer(self, number: int, topic_id: bytes) -> Producer:
        name, partition = f"producer-{number}", self._random.choice(self.partitions)
        style = Style(
            idempotent=True, acks=-1, pause_s=self._random.choice((0.01, 0.2, 1.0)), by_id=self._random.random() < 0.5
        )
        return Producer(name, self._route(partition, name), partition, topic_id, style, self.world.random(name))

    def _consumer(self, number: int, topic_id: bytes) -> Consumer:
        name, partition = f"consumer-{number}", self._random.choice(self.partitions)
        route = self._route(partition, name)
        return Consumer(name, route, {TOPIC: topic_id}, [partition], self.world.random(name))

    async def _settle(self) -> None:
        """Wait until all replicas are in sync, as every broker knows."""
        deadline = self.world.loop.time() + SETTLING_S
        while not self._is_settled():
            assert self.world.loop.time() < deadline, f"not in sync after {SETTLING_S:g} s: {self._describe()}"
            await asyncio.sleep(POLL_S)

    def _is_settled(self) -> bool:
        for machine in self.cluster.machines:
            if machine.process is None or not machine.up.is_set():
                return False
            image = machine.process.broker.node.metadata.image
            for partition in self.partitions:
                state = image.partition(*partition)
                if state is None or state.leader < 0 or len(state.isr) < len(self.cluster.machines):
                    return False
        return True

    def _describe(self) -> str:
        """What each broker knows of the partitions."""
        parts = []
        for machine in self.cluster.machines:
            if machine.process is not None and machine.up.is_set():
                image = machine.process.broker.node.metadata.image
                states = [image.partition(*partition) for partition in self.partitions]
                parts.append(f"{machine.name} at {image.version}: {states}")
            else:
                parts.append(f"{machine.name} is down")
        return "; ".join(parts)

    async def _read(self, partition: TopicPartition) -> tuple[int, tuple[tuple[int, bytes], ...]]:
        leader = self.cluster.find_leader(partition, self._random)
        assert leader is not None
        return await read_log(leader, partition)

    def _compare_replicas(self) -> None:
        """Every replica has the same bytes as the others, from the first batch to the last, and knows their epochs."""
        for partition in self.partitions:
            logs = {}
            for machine in self.cluster.machines:
                assert machine.process is not None
                log = machine.process.broker.node.replicas.get(*partition).log
                logs[machine.name] = data = read_bytes(log)
                for _, header in headers(data):
                    known = log.epochs.epoch_at(header.last_offset)
                    if known != header.leader_epoch:
                        self.problems.append(f"WRONG EPOCH {known} on {machine.name}, {partition}: {header}")
            if len(set(logs.values())) > 1:
                lengths = {name: len(data) for name, data in logs.items()}
                self.problems.append(f"DIVERGED {partition}: {lengths}")


def read_bytes(log: Log) -> bytes:
    """All batches of a replica's log."""
    offset, found = log.log_start_offset, []
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20, up_to=log.end_offset, at_least_one=True)
        assert read is not None, f"{log} cannot be read at {offset}"
        found.append(bytes(read.slice.read()))
        offset = read.next_offset
    return b"".join(found)


def broker_settings(random: Random) -> dict[str, str]:
    return {
        "replica.lag.time.max.ms": random.choice(("1000", "5000", "30000")),
        "leader.imbalance.check.interval.seconds": random.choice(("2", "300")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("500", "60000")),
        "replica.high.watermark.checkpoint.interval.ms": random.choice(("300", "5000")),
        "log.message.timestamp.after.max.ms": str(2**63 - 1),
        "log.initial.task.delay.ms": "500",
    }
