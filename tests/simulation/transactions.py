"""Transactions on a broker that dies at any one of its disk operations.

The work: a producer writes one transaction after the other into two topics and commits a group's offset with each. Some
transactions it aborts. Whenever the broker is down it is started again, and the producer repeats its requests until it
knows how its transaction ended, or starts over. In the end every transaction must be there as a whole or not at all, as
the producer was told; the group's offset must be that of the last committed transaction; and no transaction may be
open.
"""

import asyncio

from ottla.topic_partition import TopicPartition
from tests.simulation import admin
from tests.simulation.crash_points import CrashPoint, CrashPointResult
from tests.simulation.history import Ending
from tests.simulation.loop import simulate
from tests.simulation.transactional_client import NOBODY, StartOver, TransactionalClient
from tests.simulation.world import Machine, World

ID, GROUP = "copier", "group"
TOPICS = ("left", "right")
LEFT, RIGHT = (TopicPartition(topic, 0) for topic in TOPICS)
TRANSACTIONS = 6
ABORTED = (2, 4)
BROKER = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.flush.interval.messages": "1",
}
PATIENCE_S = 600.0


class Copier(TransactionalClient):
    def __init__(self, machine: Machine, version: int) -> None:
        super().__init__(ID, machine, ID, version)
        self.told: dict[int, bool] = {}
        """How each transaction ended, if the broker said so."""

    async def run(self) -> None:
        for number in range(TRANSACTIONS):
            try:
                if self.producer == NOBODY:
                    await self.init()
                await self._transact(number)
                self.told[number] = number not in ABORTED
            except StartOver:
                self.producer = NOBODY

    async def _transact(self, number: int) -> None:
        for partition in (LEFT, RIGHT):
            await self.write(partition, b"%d" % number)
        await self.commit_offset(GROUP, LEFT, number)
        await self.end(committed=number not in ABORTED)


# What must be found in the end


async def problems_of(copier: Copier) -> list[str]:
    found = [await copier.read_committed(partition) for partition in (LEFT, RIGHT)]
    problems = []
    if found[0] != found[1]:
        problems.append(f"a transaction is there in part: {found[0]} and {found[1]}")
    numbers = [int(value) for value in found[0]]
    if numbers != sorted(set(numbers)):
        problems.append(f"not once, or not in order: {numbers}")
    for number, committed in copier.told.items():
        if committed != (number in numbers):
            problems.append(f"transaction {number}: told {committed}, found {number in numbers}")
    offset = await copier.stable_offset(GROUP, LEFT)
    if offset != (numbers[-1] if numbers else -1):
        problems.append(f"the group is at {offset}, the last transaction is {numbers[-1:]}")
    return problems


# A run


def count_operations(version: int) -> int:
    result = run(version, None)
    assert not result.problems, result.problems
    return result.operations


def run(version: int, point: CrashPoint | None) -> CrashPointResult:
    return simulate(_run(version, point))


async def _run(version: int, point: CrashPoint | None) -> CrashPointResult:
    world = World(0)
    operations = 0
    try:
        machine = world.add_machine("broker-1", BROKER)
        assert await machine.start()
        for topic in TOPICS:
            await admin.create_topic(machine, topic, 1, {}, world.random("topics"))
        begun = machine.disk.operations
        if point is not None:
            machine.disk.crash_at(begun + point.operation)
            machine.disk.random.seed(f"{point}")
            machine.ending_next = point.ending
        copier = Copier(machine, version)
        try:
            async with asyncio.timeout(PATIENCE_S):
                reviving = asyncio.get_running_loop().create_task(_revive(machine))
                await copier.run()
                operations = machine.disk.operations - begun
                machine.disk.heal()
                if point is not None and machine.process is not None:
                    machine.crash(Ending.KILL)
                await copier.init()  # the next owner of the id: the open transaction is aborted
                problems = await problems_of(copier)
                reviving.cancel()
                await asyncio.wait([reviving])
        except TimeoutError:
            problems = ["STUCK"]
        problems += [f"SURPRISE {surprise}" for surprise in world.surprises]
        return CrashPointResult(operations, problems, list(world.trace.lines))
    finally:
        world.close()


async def _revive(machine: Machine) -> None:
    while True:
        await machine.down.wait()
        await machine.start()
