"""Fixed pieces of work, with a crash at every one of their disk operations in turn.

PRODUCING: a new broker, a topic that flushes every message and one that flushes none, batches until both have rolled
several times, a clean restart, more batches. UPKEEP: the same with topics that are compacted or lose their oldest
records by retention, while another topic is deleted and created again. A first run counts the operations. All runs are
the same up to operation n, so a crash at operation n always hits the same step. A second crash may follow during
recovery.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.topic_partition import TopicPartition
from tests.simulation import admin
from tests.simulation.checker import check
from tests.simulation.consumer import read_log
from tests.simulation.history import Ending, History
from tests.simulation.loop import simulate
from tests.simulation.producer import Producer, Style
from tests.simulation.recreator import Recreator
from tests.simulation.world import Machine, World

BATCHES = 16
KEYS = 4
GENERATIONS = 3
PATIENCE_S = 600.0
UPKEEP_S = 2.0
"""How long the work waits, in virtual seconds, so that compaction and retention run."""
SECOND_CRASH_WITHIN = 40
"""The second crash comes at most so many operations after the first one."""


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    topics: Mapping[str, Mapping[str, str]]
    broker: Mapping[str, str]
    recreates: bool = False

    def topics_with(self, setting: str, value: str) -> frozenset[str]:
        return frozenset(topic for topic, settings in self.topics.items() if settings.get(setting) == value)


FLUSHED = {"flush.messages": "1", "internal.segment.bytes": "6000", "index.interval.bytes": "100"}
CACHED = {"internal.segment.bytes": "6000"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
EXPIRING = {"cleanup.policy": "delete", "retention.bytes": "8000"}
OFTEN = {
    "node.id": "1",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
}

PRODUCING = Work("producing", {"flushed": FLUSHED, "cached": CACHED}, OFTEN)
UPKEEP = Work(
    "upkeep",
    {
        "compacted": {**FLUSHED, **COMPACTED, "internal.segment.bytes": "3000"},
        "compacted-cached": {**CACHED, **COMPACTED, "internal.segment.bytes": "3000"},
        "expiring": {**FLUSHED, **EXPIRING, "internal.segment.bytes": "3000"},
    },
    {
        **OFTEN,
        "log.cleaner.backoff.ms": "100",
        "log.initial.task.delay.ms": "100",
        "log.retention.check.interval.ms": "200",
        "log.segment.delete.delay.ms": "300",
    },
    recreates=True,
)
WORKS = (PRODUCING, UPKEEP)


class CrashPoint(NamedTuple):
    operation: int
    ending: Ending
    seed: int = 0
    """The seed that decides what a power cut leaves, and whether and when there is a second crash."""

    def __str__(self) -> str:
        return f"{self.ending.value} in operation {self.operation} (seed {self.seed})"


class CrashPointResult(NamedTuple):
    operations: int
    problems: list[str]
    trace: list[str]


def count_operations(work: Work) -> int:
    """Count the disk operations of a piece of work."""
    result = run(work, None)
    assert not result.problems, result.problems
    return result.operations


def every_point(operations: int, seed: int = 0) -> Iterator[CrashPoint]:
    for operation in range(1, operations + 1):
        for ending in (Ending.KILL, Ending.POWER_CUT):
            yield CrashPoint(operation, ending, seed)


def run(work: Work, point: CrashPoint | None) -> CrashPointResult:
    return simulate(_run(work, point))


async def _run(work: Work, point: CrashPoint | None) -> CrashPointResult:
    world = World(0)
    try:
        machine = world.add_machine("broker-1", work.broker)
        if point is not None:
            machine.disk.crash_at(point.operation)
            machine.ending_next = point.ending
        history = History(
            work.topics_with("flush.messages", "1"),
            world.events,
            compacted_topics=work.topics_with("cleanup.policy", "compact"),
            expiring_topics=work.topics_with("cleanup.policy", "delete"),
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                operations, problems = await _do_work(work, machine, history, point)
            problems += [str(violation) for violation in check(history)]
        except Exception as error:
            operations, problems = 0, [f"STUCK: {error!r}"]
        problems += [f"SURPRISE {surprise}" for surprise in world.surprises]
        return CrashPointResult(operations, problems, list(world.trace.lines))
    finally:
        world.close()


async def _do_work(work: Work, machine: Machine, history: History, point: CrashPoint | None) -> tuple[int, list[str]]:
    """Do the work. Returns how many operations it took, and what is wrong with the topic that was created again."""
    loop = asyncio.get_running_loop()
    reviving = loop.create_task(_revive(machine, point), name="reviving")
    random = machine.world.random("work")
    partitions = [TopicPartition(topic, 0) for topic in work.topics]
    for topic, settings in work.topics.items():
        await admin.create_topic(machine, topic, 1, settings, random)
    recreator = Recreator(machine, machine.world.random("recreator")) if work.recreates else None
    recreating = loop.create_task(recreator.run(GENERATIONS), name="recreating") if recreator else None
    await _produce(machine, partitions, "early")
    if machine.process is not None and machine.up.is_set():
        await machine.stop()
    await _produce(machine, partitions, "late")
    if recreating is not None:
        await recreating
        await asyncio.sleep(UPKEEP_S)
    await machine.up.wait()
    operations = machine.disk.operations
    machine.disk.heal()  # cancels a second crash that did not come
    reviving.cancel()
    await asyncio.wait([reviving])
    machine.crash(point.ending if point else Ending.KILL)
    assert await machine.start(), "the last start failed"
    for partition in partitions:
        history.starts[partition], history.final[partition] = await read_log(machine, partition)
    return operations, await recreator.check() if recreator else []


async def _produce(machine: Machine, partitions: list[TopicPartition], when: str) -> None:
    style = Style(idempotent=True, acks=-1, pause_s=0.01, by_id=False, keys=KEYS)
    working = []
    for partition in partitions:
        name = f"{when}-{partition.topic}"
        producer = Producer(name, machine, partition, bytes(16), style, machine.world.random(name))
        working.append(asyncio.get_running_loop().create_task(producer.run(BATCHES), name=name))
    await asyncio.gather(*working)


async def _revive(machine: Machine, point: CrashPoint | None) -> None:
    """Start the machine whenever it is down. In some runs it crashes again while it recovers from the first crash."""
    if point is not None:
        machine.disk.random.seed(f"{point}")
        random = machine.world.random(f"second crash after {point}")
    while True:
        await machine.down.wait()
        if point is not None and machine.life == 1 and random.random() < 0.5:
            machine.disk.crash_at(machine.disk.operations + random.randint(1, SECOND_CRASH_WITHIN))
        await machine.start()
