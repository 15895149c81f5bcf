"""One seed from beginning to verdict: topics, clients and faults, then a last restart without faults, then a check.

The check reads the whole log of every partition.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from ottla.topic_partition import TopicPartition
from tests.simulation import admin
from tests.simulation.checker import check
from tests.simulation.committer import Committer
from tests.simulation.consumer import Consumer, read_log
from tests.simulation.history import History
from tests.simulation.loop import simulate
from tests.simulation.offset_checker import OFFSETS_TOPIC
from tests.simulation.peace import end_trouble, finish, last_restart
from tests.simulation.producer import Producer, Style
from tests.simulation.recreator import NAME as RECREATOR
from tests.simulation.recreator import Recreator
from tests.simulation.trouble import Trouble
from tests.simulation.world import World

PRODUCERS_MAX = 4
CONSUMERS_MAX = 2
COMMITTERS_MAX = 3
COMMITS_MAX = 40
BATCHES_MAX = 60
KEYS = 6
LIMIT_S = 400.0
"""Virtual seconds that the whole run may take."""

Settings = Mapping[str, str]


@dataclass(slots=True)
class Verdict:
    seed: int
    digest: str
    problems: list[str]
    records: int = 0
    lives: int = 0
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        outcome = "; ".join(self.problems[:5]) or "kept every promise"
        return f"seed {self.seed}: {self.records} records, {self.lives} lives, trace {self.digest}: {outcome}"


def run(seed: int, *, trace_lines: int | None = 200, keep_page_cache: bool = False) -> Verdict:
    """With `keep_page_cache` a broker may be started again after a failed fsync without a reboot of its machine."""
    return simulate(_run(seed, trace_lines, keep_page_cache))


async def _run(seed: int, trace_lines: int | None, keep_page_cache: bool) -> Verdict:
    world = World(seed, trace_lines=trace_lines)
    world.reboots_after_failed_fsync = not keep_page_cache
    try:
        scenario = Scenario(world)
        problems = []
        try:
            async with asyncio.timeout(LIMIT_S):
                await scenario.play()
            problems = [*scenario.problems, *(str(violation) for violation in check(scenario.history))]
        except Exception as error:
            problems.append(f"STUCK: {error!r}")
        problems += [f"SURPRISE {surprise}" for surprise in world.surprises]
        records = sum(map(len, scenario.history.final.values()))
        machine = scenario.machine
        return Verdict(seed, world.trace.digest, problems, records, machine.life, list(world.trace.lines))
    finally:
        world.close()


class Scenario:
    def __init__(self, world: World) -> None:
        self.world = world
        self._random = world.random("scenario")
        self.machine = world.add_machine("broker-1", broker_settings(self._random))
        self.topics = {f"topic-{number}": topic_settings(self._random) for number in range(self._random.randint(1, 3))}
        self._cleaning = world.random("cleanup")
        self.topics = {topic: {**own, **cleanup_settings(self._cleaning)} for topic, own in self.topics.items()}
        self._recreator = Recreator(self.machine, world.random(RECREATOR)) if self._cleaning.random() < 0.3 else None
        self._partitions = {topic: self._random.randint(1, 2) for topic in self.topics}
        self._grouping = world.random("groups")
        self._offsets = {"cleanup.policy": "compact", **topic_settings(self._grouping)}
        every = {**self.topics, OFFSETS_TOPIC: self._offsets}
        durable = frozenset(name for name, settings in every.items() if settings.get("flush.messages") == "1")
        self.history = History(
            durable,
            world.events,
            compacted_topics=self._topics_with_policy("compact"),
            expiring_topics=self._topics_with_policy("delete"),
        )
        self.problems: list[str] = []

    def _topics_with_policy(self, policy: str) -> frozenset[str]:
        cleaned = {topic: settings.get("cleanup.policy", "") for topic, settings in self.topics.items()}
        return frozenset(topic for topic, policies in cleaned.items() if policy in policies)

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        partitions = [
            TopicPartition(topic, index) for topic, count in self._partitions.items() for index in range(count)
        ]
        trouble = Trouble(self.machine, [admin.HOST], self.world.random("trouble"))
        reviving = loop.create_task(trouble.revive(), name="reviving")
        striking = loop.create_task(trouble.strike(), name="striking")
        ending = loop.call_later(self._random.choice((5, 20, 60)), end_trouble, self.machine, trouble)
        topic_ids = {topic: await self._create(topic) for topic in self.topics}
        producers = self._build_producers(partitions, topic_ids)
        consumers = self._build_consumers(partitions, topic_ids)
        committers = await self._build_committers(topic_ids)
        trouble.clients += [*(producer.name for producer in producers), *(consumer.name for consumer in consumers)]
        trouble.clients += [committer.name for committer in committers]
        working = [
            loop.create_task(producer.run(self._random.randint(1, BATCHES_MAX)), name=producer.name)
            for producer in producers
        ]
        working += [
            loop.create_task(committer.run(self._grouping.randint(1, COMMITS_MAX)), name=committer.name)
            for committer in committers
        ]
        if self._recreator is not None:
            trouble.clients.append(RECREATOR)
            working.append(loop.create_task(self._recreator.run(self._cleaning.randint(2, 5)), name=RECREATOR))
        reading = [loop.create_task(consumer.run(), name=consumer.name) for consumer in consumers]
        await asyncio.wait(working, timeout=max(ending.when() - loop.time(), 0))
        ending.cancel()
        end_trouble(self.machine, trouble)
        await finish([*working, striking, loop.create_task(self.machine.up.wait(), name="the last start")])
        for consumer in consumers:
            consumer.stopped = True
        await finish(reading)
        reviving.cancel()
        await asyncio.wait([reviving])
        await last_restart(self.machine, self._random)
        for partition in partitions:
            self.history.starts[partition], self.history.final[partition] = await read_log(self.machine, partition)
        if self._recreator is not None:
            self.problems += await self._recreator.check()
        for committer in committers:
            self.history.final_offsets[committer.name] = await committer.read()

    async def _create(self, topic: str) -> bytes:
        random = self.world.random(f"creation of {topic}")
        return await admin.create_topic(self.machine, topic, self._partitions[topic], self.topics[topic], random)

    def _build_producers(self, partitions: list[TopicPartition], topic_ids: Mapping[str, bytes]) -> list[Producer]:
        producers = []
        for number in range(self._random.randint(1, PRODUCERS_MAX)):
            name, partition = f"producer-{number}", self._random.choice(partitions)
            random = self.world.random(name)
            style = replace(self._choose_style(), keys=KEYS if partition.topic in self.history.compacted_topics else 0)
            producers.append(Producer(name, self.machine, partition, topic_ids[partition.topic], style, random))
        return producers

    def _build_consumers(self, partitions: list[TopicPartition], topic_ids: Mapping[str, bytes]) -> list[Consumer]:
        names = [f"consumer-{number}" for number in range(self._random.randint(0, CONSUMERS_MAX))]
        return [Consumer(name, self.machine, topic_ids, partitions, self.world.random(name)) for name in names]

    async def _build_committers(self, topic_ids: Mapping[str, bytes]) -> list[Committer]:
        """Build groups that commit offsets, in half of the runs. Other runs do not even have the topic for their
        offsets."""
        names = [f"group-{number}" for number in range(max(0, self._grouping.randint(-COMMITTERS_MAX, COMMITTERS_MAX)))]
        if not names:
            return []
        random = self.world.random(f"creation of {OFFSETS_TOPIC}")
        await admin.create_topic(self.machine, OFFSETS_TOPIC, 2, self._offsets, random)
        topic = next(iter(topic_ids))
        return [Committer(name, self.machine, topic, topic_ids[topic], self.world.random(name)) for name in names]

    def _choose_style(self) -> Style:
        random = self._random
        idempotent = random.random() < 0.6
        return Style(
            idempotent=idempotent,
            acks=-1 if idempotent else random.choice((-1, 1, 1, 0)),
            pause_s=random.choice((0.01, 0.2, 1.0)),
            by_id=random.random() < 0.5,
        )


def broker_settings(random: Random) -> Settings:
    """Settings with which background work runs often enough to interfere."""
    return {
        "node.id": "1",
        "log.flush.offset.checkpoint.interval.ms": random.choice(("500", "5000", "60000")),
        "log.flush.start.offset.checkpoint.interval.ms": "7000",
        # The faults move the broker's clock by hours. Refusing a record with a wrong timestamp would break no promise,
        # but it would end the producer.
        "log.message.timestamp.after.max.ms": str(2**63 - 1),
        "replica.high.watermark.checkpoint.interval.ms": random.choice(("300", "5000")),
        "log.cleaner.backoff.ms": "700",
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "900",
        "log.segment.delete.delay.ms": "1200",
    }


def topic_settings(random: Random) -> Settings:
    settings = {}
    policy = random.choice(("each", "each", "some", "time", "none"))
    if policy == "each":
        settings["flush.messages"] = "1"
    elif policy == "some":
        settings["flush.messages"] = str(random.randint(2, 20))
    elif policy == "time":
        settings["flush.ms"] = "2000"
    if random.random() < 0.6:
        settings["internal.segment.bytes"] = str(random.choice((6000, 15_000, 40_000)))
    if random.random() < 0.3:
        settings["segment.ms"] = str(random.choice((100, 5000)))
    if random.random() < 0.3:
        settings["index.interval.bytes"] = "100"
    if random.random() < 0.2:
        settings["message.timestamp.type"] = "LogAppendTime"
    return settings


def cleanup_settings(random: Random) -> Settings:
    """Settings for compaction or retention, for half of the topics."""
    policy = random.choice(("", "", "compact", "delete", "compact,delete"))
    if not policy:
        return {"retention.ms": "-1"}
    settings = {"cleanup.policy": policy, "internal.segment.bytes": str(random.choice((6000, 15_000)))}
    if "compact" in policy:
        settings["min.cleanable.dirty.ratio"] = random.choice(("0", "0.5"))
    if "delete" in policy:
        settings["retention.bytes"] = str(random.choice((10_000, 30_000)))
    return settings
