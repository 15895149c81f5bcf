"""Moves of logs between data directories while records are deleted: what was deleted does not come back."""

import asyncio
import contextlib
from random import Random

import pytest

from ottla.broker.broker import Broker
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.replication import moves
from ottla.replication.partition import Partition
from ottla.storage.directories import LOG_STARTS, decode_checkpoint
from ottla.storage.log import Log
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.replication.small_cluster import read
from tests.unit.replication.test_moves import elsewhere, get, run, started, target, wait_for
from tests.unit.replication.three_directories import DIRECTORIES, TOPIC, create, directory_of
from tests.unit.storage.logs import new_disk
from tests.unit.storage.truncating import truncate_to


def append_ten(partition: Partition) -> None:
    data = memoryview(batch.encode([(None, b"%d" % number, (), 0) for number in range(10)]))
    partition.append(data, batch.check_client_batch(data), 0, 1)


async def delete(broker: Broker, offset: int) -> None:
    """As a client does: the log start is on disk when this returns."""
    get(broker).delete_records(offset)
    await broker.node.replication.log_starts.write()


async def delete_if_alive(broker: Broker, disk: SimulatedDisk, offset: int) -> bool:
    """Returns whether that was acknowledged, before the crash of the disk."""
    deletion = asyncio.ensure_future(delete(broker, offset))
    await wait_for(lambda: deletion.done() or disk._dead)
    is_done = deletion.done() and deletion.exception() is None
    deletion.cancel()
    return is_done


async def move(broker: Broker) -> str:
    """Move the replica to the next directory. Returns that."""
    partition = get(broker)
    new = elsewhere(partition)
    broker.node.replication.moves.move(partition, target(broker, new))
    await wait_for(lambda: not list(broker.node.replication.moves))
    return new


def offsets(broker: Broker) -> list[int]:
    return [offset for offset, _, _ in read(get(broker).log)]


@pytest.mark.parametrize("start", [0, 1, 5, 10, 15, 29, 30])
def test_a_log_that_starts_anywhere_is_moved(start: int) -> None:
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        for _ in range(3):
            append_ten(partition)
        await delete(broker, start)
        epochs = partition.log.epochs.entries
        for _ in range(2):
            new = await move(broker)
            assert directory_of(broker, TOPIC, 0) == new
            assert (partition.log.log_start_offset, partition.log.end_offset) == (start, 30)
            assert offsets(broker) == list(range(start, 30)) and partition.log.epochs.entries == epochs
        broker.abort()
        disk.crash(lose_unsynced=False)
        broker = await started(disk)
        assert get(broker).log.log_start_offset == start and offsets(broker) == list(range(start, 30))
        await broker.stop(1.0)

    run(main())


def test_records_are_deleted_within_batches_while_their_log_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "STEP_BYTES", 300)
    monkeypatch.setattr(moves, "LAST_STEP_BYTES", 300)

    async def main(seed: int) -> None:
        random = Random(seed)
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition = get(broker)
        for _ in range(20):
            append_ten(partition)
        partition.delete_records(random.randint(1, 150))
        new = elsewhere(partition)
        broker.node.replication.moves.move(partition, target(broker, new))
        while list(broker.node.replication.moves):
            await asyncio.sleep(random.choice((0.001, 0.005)))
            end = partition.log.end_offset
            partition.delete_records(min(partition.log.log_start_offset + random.choice((0, 3, 40)), end))
            if end < 250:
                append_ten(partition)
        assert directory_of(broker, TOPIC, 0) == new
        assert offsets(broker) == list(range(partition.log.log_start_offset, partition.log.end_offset))
        await broker.stop(1.0)

    for seed in range(10):
        simulate(main(seed))


@pytest.mark.parametrize("lose_unsynced", [False, True])
@pytest.mark.parametrize("last", [3, 8])
def test_a_crash_at_any_moment_of_a_move_brings_no_deleted_record_back(last: int, lose_unsynced: bool) -> None:
    """Nothing in the new directory but the checkpoint says where a log begins that starts within a batch."""

    async def main(step: int) -> bool:
        disk = SimulatedDisk(Random(step))
        for path in DIRECTORIES:
            disk.make_directory(path)
        broker = await started(disk)
        await create(broker, TOPIC, 1, flush_messages="1")
        partition = get(broker)
        append_ten(partition)
        await wait_for(lambda: partition.durable.value == 10)
        await delete(broker, 3)
        disk.crash_at(disk.operations + step)
        deleted_to = 3
        with contextlib.suppress(Crashed):
            broker.node.replication.moves.move(partition, target(broker, elsewhere(partition)))
            while list(broker.node.replication.moves) and not disk._dead:
                await asyncio.sleep(0.001)
                if deleted_to < last:
                    deleted_to += await delete_if_alive(broker, disk, deleted_to + 1)
        crashed = bool(disk._dead)
        with contextlib.suppress(Crashed):
            broker.abort()
        disk.crash(lose_unsynced)
        broker = await started(disk)
        start = get(broker).log.log_start_offset
        assert deleted_to <= start <= deleted_to + 1 and offsets(broker) == list(range(start, 10))
        await broker.stop(1.0)
        return crashed

    steps = 1
    while simulate(main(steps)):
        steps += 3
    assert steps > 20


def test_a_move_waits_until_the_new_place_knows_the_log_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the log is truncated, and copied again: what an earlier attempt has written there was removed."""
    on_disk: list[int] = []

    async def main(again: int) -> None:
        def switch_log(self: Partition, log: Log) -> None:
            on_disk.append(decode_checkpoint(disk.read(f"{new.path}/{LOG_STARTS}"))[key])
            switch(self, log)

        switch = Partition.switch_log
        monkeypatch.setattr(Partition, "switch_log", switch_log)
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        for _ in range(3):
            append_ten(partition)
        partition.delete_records(25)
        new, key = target(broker, elsewhere(partition)), partition.topic_partition
        partition.flushing.hold(lambda: None)  # the move cannot end
        broker.node.replication.moves.move(partition, new)
        await wait_for(lambda: new.log_starts.get(key) == 25)
        truncate_to(partition.log, 5)
        partition.high_watermark.retreat(0, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for _ in range(3):
            append_ten(partition)
        partition.delete_records(again)
        partition.flushing.resume()
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert broker.node.replicas.home(partition) is new and on_disk.pop() == again
        assert offsets(broker) == list(range(again, 30))
        await broker.stop(1.0)
        monkeypatch.undo()

    for again in (5, 25):
        simulate(main(again))
