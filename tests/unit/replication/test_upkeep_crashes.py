"""A crash in every file operation of retention, of deleting records, and of deleting a topic and creating it again.

One fixed piece of work runs once to count its operations and then again for each of them, once with a process that is
killed there and once with a power cut, which leaves any choice of what was not synced.
"""

import asyncio
from functools import partial
from random import Random

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.topics import delete_topic
from ottla.records.batch import decode, headers
from ottla.replication.partition import Partition
from tests.samples import choose_sample
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.unit.replication.three_directories import TOPIC, append, create, started

RECORDS = 7
CONFIGS = {"internal_segment_bytes": "250", "retention_bytes": "250"}
DIRECTORIES = ("/data",)


class Promises:
    """What the work was told is done, so that no crash may undo it."""

    def __init__(self) -> None:
        self.begun_at = 0
        """How many operations the first start took: those are tested elsewhere."""
        self.generation = 0
        """How many topics of this name were created so far."""
        self.creating = False
        self.flushed = 0
        self.start = 0
        self.starting = 0


async def work(disk: SimulatedDisk, promises: Promises) -> None:
    broker = await started(disk, DIRECTORIES)
    promises.begun_at = disk.operations
    for generation in (1, 2):
        promises.creating = True
        await create(broker, TOPIC, 1, **CONFIGS)
        promises.generation, promises.creating = generation, False
        promises.flushed = promises.start = promises.starting = 0
        partition = broker.node.replicas.get(TOPIC, 0)
        fill(partition, generation)
        partition.log.flush()
        promises.flushed = RECORDS
        await broker.node.replication.checkpoints.write_recovery_points()
        promises.starting = RECORDS
        await broker.node.replication.upkeep.expire_segments()
        promises.start = partition.log.log_start_offset
        partition.delete_records(RECORDS - 1)
        await broker.node.replication.log_starts.write()
        promises.start = RECORDS - 1
        while partition.log.files.has_deleted:
            partition.log.files.take_deleted().run()
        if generation == 1:
            promises.creating = True
            await broker.node.metadata.change(partial(delete_topic, topic_id=partition.topic_id))
            await broker.node.replication.removals.run_due(float("inf"))
    await broker.stop(1)


def fill(partition: Partition, generation: int) -> None:
    for number in range(RECORDS):
        append(partition, b"generation %d record %d" % (generation, number))


def check(broker: Broker, promises: Promises) -> None:
    topic = broker.node.image.topic(TOPIC)
    if topic is None:
        assert promises.creating or not promises.generation
        return
    partition = broker.node.replicas.get(TOPIC, 0)
    log = partition.log
    found = records(partition)
    generations = {value.split()[1] for value in found.values()}
    # What a crash in mid-creation leaves may be either topic, but never records of both.
    assert len(generations) <= 1
    if not promises.creating:
        assert generations <= {b"%d" % promises.generation}
        assert log.end_offset >= promises.flushed
        assert promises.start <= log.log_start_offset
        if promises.flushed:
            assert log.log_start_offset <= promises.starting
    assert list(found) == list(range(log.log_start_offset, log.end_offset))
    assert all(value.endswith(b"record %d" % offset) for offset, value in found.items())


def records(partition: Partition) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    log = partition.log
    offset = log.log_start_offset
    while (read := log.read(offset, 10_000, up_to=log.end_offset, at_least_one=True)) is not None:
        data = read.slice.read()
        for position, header in headers(data):
            for record in decode(data, position):
                if record.offset >= log.log_start_offset:
                    found[record.offset] = record.value or b""
            offset = header.next_offset
    return found


def crashed_at(operation: int, *, power_cut: bool) -> None:
    disk, promises = SimulatedDisk(Random(operation)), Promises()
    disk.crash_at(operation)
    with pytest.raises(Crashed):
        asyncio.run(work(disk, promises))
    disk.crash(lose_unsynced=power_cut)

    async def recovered() -> None:
        broker = await started(disk, DIRECTORIES)
        check(broker, promises)
        await broker.stop(1)

    asyncio.run(recovered())


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
def test_a_crash_anywhere_undoes_no_promise(power_cut: bool) -> None:
    # Old records never resurface, neither in the same topic nor in a new one of its name; none that was flushed and
    # not deleted is missing; where the log begins survives.
    disk, promises = SimulatedDisk(Random(0)), Promises()
    asyncio.run(work(disk, promises))
    points = range(promises.begun_at + 1, disk.operations + 1)
    assert len(points) > 200
    for operation in choose_sample(points, 15):
        crashed_at(operation, power_cut=power_cut)
