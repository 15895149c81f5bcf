"""A compacted log that was moved in by its files keeps its gaps, whatever happens to the broker afterwards."""

import asyncio
from random import Random

import pytest

from ottla.broker.broker import Broker
from ottla.storage.directories import CLEAN_SHUTDOWN
from ottla.storage.log import LogSettings
from ottla.storage.opening import create_log
from tests.simulation.disk import SimulatedDisk
from tests.unit.replication.three_directories import TOPIC, create, started
from tests.unit.storage.logs import append, batch_of, values

DATA = ("/data",)
DIRECTORY = f"/data/{TOPIC}-0"
NOW = 1_700_000_000_000


def move_in(disk: SimulatedDisk) -> None:
    """Put a log into the empty partition's directory whose only gap is between two segments, as compaction leaves it.

    Record 1 of its first segment is gone, and no segment shows by itself that it was compacted.
    """
    elsewhere = create_log(disk, "/elsewhere", bytes(16), LogSettings(), NOW)
    append(elsewhere, batch_of(b"0"))
    size = elsewhere.segments[0].size
    append(elsewhere, batch_of(b"1"))
    elsewhere.roll(NOW)
    append(elsewhere, batch_of(b"2"))
    elsewhere.close()
    for name in disk.list(DIRECTORY):
        if name != "partition.metadata":
            disk.unlink(f"{DIRECTORY}/{name}")
    for name in disk.list("/elsewhere"):
        if name != "partition.metadata":
            content = disk.read(f"/elsewhere/{name}")
            disk.replace(f"{DIRECTORY}/{name}", content[:size] if name == f"{0:020d}.log" else content)


def found(broker: Broker) -> list[bytes]:
    return values(broker.node.replicas.get(TOPIC, 0).log)


@pytest.mark.parametrize("source_was_killed", [False, True])
@pytest.mark.parametrize("power_cut", [False, True])
def test_gaps_of_a_moved_log_are_not_losses(source_was_killed: bool, power_cut: bool) -> None:
    # The first start after the move cannot tell, and keeps the gap. The next one, after a crash, must know better than
    # to take the log for one that was begun here, although no checkpoint of ours was due in between.
    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        broker = await started(disk, DATA)
        await create(broker, TOPIC, 1, cleanup_policy="compact")
        await broker.stop(1)
        move_in(disk)
        if source_was_killed:
            disk.unlink(f"/data/{CLEAN_SHUTDOWN}")
        for _ in range(3):
            broker = await started(disk, DATA)
            assert found(broker) == [b"0", b"2"]
            disk.crash(lose_unsynced=power_cut)
            broker.abort()

    asyncio.run(main())
