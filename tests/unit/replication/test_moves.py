"""Moves of replicas between data directories: nothing is lost, whatever happens meanwhile."""

import asyncio
import contextlib
import errno
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.configs import ConfigAlteration, Operation, alter_brokers
from ottla.cluster.entities import TopicImage
from ottla.cluster.topics import delete_topic
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import describe_log_dirs
from ottla.records import batch
from ottla.replication import moves
from ottla.replication.partition import Partition
from ottla.storage import copying
from ottla.storage.directories import DataDirectory
from ottla.storage.files import FileSlice
from ottla.storage.log import Log
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.simulation.loop import simulate
from tests.simulation.process import ProcessThreads
from tests.unit.handlers.one_broker import FixedClock, call, listen
from tests.unit.replication.small_cluster import read
from tests.unit.replication.three_directories import DIRECTORIES, TOPIC, append, create, directory_of, settled
from tests.unit.storage.logs import new_disk
from tests.unit.storage.truncating import truncate_to


async def started(disk: SimulatedDisk, **config: str) -> Broker:
    loop = asyncio.get_running_loop()
    settings = {name.replace("_", "."): value for name, value in config.items()}
    broker = Broker(
        BrokerConfig.of({"log.dirs": ",".join(DIRECTORIES), **settings}),
        DIRECTORIES[0],
        disk=disk,
        clock=FixedClock(),
        random=Random(1),
        offload=ProcessThreads(loop, Random(1)),
        listen=listen,
    )
    await broker.start()
    return broker


def get(broker: Broker, index: int = 0) -> Partition:
    return broker.node.replicas.get(TOPIC, index)


def target(broker: Broker, path: str) -> DataDirectory:
    return broker.node.replication.moves.find_directory(path)


def image_of(broker: Broker) -> TopicImage:
    topic = broker.node.metadata.image.topic(TOPIC)
    assert topic is not None
    return topic


def values(partition: Partition) -> list[bytes | None]:
    return [value for _, _, value in read(partition.log)]


async def wait_for(condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 600
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


def elsewhere(partition: Partition) -> str:
    home = partition.log.directory.rpartition("/")[0]
    return DIRECTORIES[(DIRECTORIES.index(home) + 1) % 3]


def run(main: Coroutine[Any, Any, None]) -> None:
    simulate(main)


@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
def test_a_replica_moves_while_it_is_written_to(flush_messages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "STEP_BYTES", 2000)
    monkeypatch.setattr(moves, "LAST_STEP_BYTES", 300)

    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC, 1, flush_messages=flush_messages)
        partition = get(broker)
        expected = [b"%d" % number for number in range(300)]
        for value in expected:
            append(partition, value)
        old, new = directory_of(broker, TOPIC, 0), elsewhere(partition)
        broker.node.replication.moves.move(partition, target(broker, new))
        assert [move.target.path for move in broker.node.replication.moves] == [new]
        number = 300
        while list(broker.node.replication.moves):
            await asyncio.sleep(0.002)
            expected.append(b"%d" % number)
            append(partition, expected[-1])
            number += 1
        assert directory_of(broker, TOPIC, 0) == new and values(partition) == expected
        assert broker.node.replicas.home(partition) is target(broker, new)
        assert partition.moving_to is None and not disk.exists(f"{old}/{TOPIC}-0")
        append(partition, b"after")
        await wait_for(lambda: flush_messages != "1" or partition.durable.value == partition.log.end_offset)
        await broker.stop(1.0)
        broker = await started(disk)
        assert values(get(broker)) == [*expected, b"after"] and directory_of(broker, TOPIC, 0) == new
        await broker.stop(1.0)

    run(main())


def test_a_move_keeps_producers_epochs_and_the_log_start() -> None:
    # And up to where tombstones are missing: a copy of a compacted log would take any hole for a removed tombstone.
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        for number in range(20):
            append(partition, b"%d" % number)
        partition.delete_records(7)
        hole = batch.encode([(None, b"after a hole", (), 0)], base_offset=25)
        partition.log.append_as_follower(bytes(hole), 0)
        partition.log.removed_deletes.take_over(9)
        producers, entries = partition.log.producers, partition.log.epochs.entries
        new = elsewhere(partition)
        broker.node.replication.moves.move(partition, target(broker, new))
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert directory_of(broker, TOPIC, 0) == new
        assert (partition.log.log_start_offset, partition.log.end_offset) == (7, 26)
        assert partition.log.producers is producers and partition.log.epochs.entries == entries
        assert partition.log.removed_deletes.before == 9
        broker.abort()
        disk.crash(lose_unsynced=False)
        broker = await started(disk)
        assert get(broker).log.log_start_offset == 7 and len(values(get(broker))) == 14
        await broker.stop(1.0)

    run(main())


@pytest.mark.parametrize("lose_unsynced", [False, True])
def test_a_crash_at_any_moment_of_a_move_loses_nothing(lose_unsynced: bool) -> None:
    async def main(step: int) -> bool:
        disk = SimulatedDisk(Random(step))
        for path in DIRECTORIES:
            disk.make_directory(path)
        broker = await started(disk)
        await create(broker, TOPIC, 1, flush_messages="1")
        partition = get(broker)
        for number in range(5):
            append(partition, b"%d" % number)
        await wait_for(lambda: partition.durable.value == 5)
        disk.crash_at(disk.operations + step)
        crashed = False
        with contextlib.suppress(Crashed):
            broker.node.replication.moves.move(partition, target(broker, elsewhere(partition)))
            try:
                await wait_for(lambda: not list(broker.node.replication.moves) or disk._dead)
            finally:
                crashed = disk._dead
        with contextlib.suppress(Crashed):
            broker.abort()
        disk.crash(lose_unsynced)
        broker = await started(disk)
        assert values(get(broker)) == [b"%d" % number for number in range(5)]
        await broker.stop(1.0)
        return crashed

    steps = 1
    while simulate(main(steps)):
        steps += 3
    assert steps > 10


def test_a_replica_comes_back_when_no_thread_works_at_its_old_place_any_more() -> None:
    # A flush that began there would write the leader epochs of then.
    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition, running = get(broker), broker.node.replication.moves
        append(partition, b"a")
        home, quick = directory_of(broker, TOPIC, 0), partition.flushing._offload
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition.flushing._offload = lambda *_: flush  # type: ignore[assignment]
        partition.flushing.request()
        partition.flushing._offload = quick
        running.move(partition, target(broker, elsewhere(partition)))
        await wait_for(lambda: not list(running))
        assert directory_of(broker, TOPIC, 0) != home
        running.move(partition, target(broker, home))
        await asyncio.sleep(1)
        assert list(running) and not broker.node.replication._disk.exists(f"{home}/{TOPIC}-0")
        flush.set_result(None)
        await wait_for(lambda: not list(running))
        assert directory_of(broker, TOPIC, 0) == home and values(partition) == [b"a"]
        await broker.stop(1.0)

    run(main())


def test_a_move_to_the_same_place_or_twice_is_one_move_at_most() -> None:
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        append(partition, b"a")
        running = broker.node.replication.moves
        running.move(partition, target(broker, directory_of(broker, TOPIC, 0)))
        assert not list(running)
        first, second = (path for path in DIRECTORIES if path != directory_of(broker, TOPIC, 0))
        running.move(partition, target(broker, first))
        running.move(partition, target(broker, first))
        await asyncio.sleep(0.0001)
        running.move(partition, target(broker, second))
        await wait_for(lambda: not list(running))
        assert directory_of(broker, TOPIC, 0) == second and values(partition) == [b"a"]
        await wait_for(lambda: not disk.exists(f"{first}/{TOPIC}-0"))
        running.move(partition, target(broker, first))
        await wait_for(lambda: not list(running))
        assert directory_of(broker, TOPIC, 0) == first and values(partition) == [b"a"]
        await broker.stop(1.0)

    run(main())


def test_a_replica_is_in_one_directory_at_every_moment_of_its_move() -> None:
    """DescribeLogDirs lists it once as current, and as future elsewhere. Clients take one entry for a directory."""

    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC, 1)
        partition = get(broker)
        append(partition, b"a")
        old, new = directory_of(broker, TOPIC, 0), elsewhere(partition)
        broker.node.replication.moves.move(partition, target(broker, new))
        seen: list[list[tuple[str, bool]]] = []
        while not seen or seen[-1] != [(new, False)]:
            results = describe_log_dirs.handle(broker.node, call(DescribeLogDirsRequest())).results
            topics = [(each.log_dir, topic) for each in results for topic in each.topics]
            listed = [(path, told.is_future_key) for path, topic in topics for told in topic.partitions]
            if listed not in seen:
                seen.append(listed)
            await asyncio.sleep(0.0001)
        assert [sorted(listed) for listed in seen] == [sorted([(old, False), (new, True)]), [(new, False)]]
        await broker.stop(1.0)

    run(main())


def test_cordoned_directories_get_no_new_replicas() -> None:
    """They are named by a setting that can be changed, and a change takes effect at once. Replicas in them stay."""

    async def main() -> None:
        first, second, third = DIRECTORIES
        broker = await started(new_disk(), cordoned_log_dirs=f"{first},{second}")
        await create(broker, TOPIC, 4)
        assert {directory_of(broker, TOPIC, number) for number in range(4)} == {third}
        with pytest.raises(KafkaError) as caught:
            target(broker, first)
        assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

        async def cordon(value: str | None) -> list[str]:
            """Returns which directories the broker describes as cordoned."""
            alteration = ConfigAlteration(
                "cordoned.log.dirs", Operation.DELETE if value is None else Operation.SET, value
            )
            await broker.node.metadata.change(
                lambda image: alter_brokers(image, str(broker.node.broker_id), [alteration], broker.node.config)
            )
            results = describe_log_dirs.handle(broker.node, call(DescribeLogDirsRequest())).results
            return [each.log_dir for each in results if each.is_cordoned]

        assert await cordon(f"{second},{third}") == [second, third]
        await create(broker, "more", 4)
        assert {directory_of(broker, "more", number) for number in range(4)} == {first}
        assert directory_of(broker, TOPIC, 0) == third
        for value in ("*", f"{third},{second},{first}"):
            assert await cordon(value) == [first, second, third]
            with pytest.raises(KafkaError) as caught:
                await create(broker, "too-many", 1)
            assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
        for value in ("/elsewhere", f"{first},*", f"{first},{first}/"):
            with pytest.raises(KafkaError) as caught:
                await cordon(value)
            assert caught.value.code == ErrorCode.INVALID_REQUEST
        assert await cordon("") == []
        assert await cordon(None) == [first, second]
        await broker.stop(1.0)

    run(main())


def test_unknown_and_failed_directories_are_refused() -> None:
    async def main() -> None:
        broker = await started(new_disk())
        with pytest.raises(KafkaError) as caught:
            target(broker, "/nowhere")
        assert caught.value.code == ErrorCode.LOG_DIR_NOT_FOUND
        target(broker, DIRECTORIES[1]).failure = "broken"
        with pytest.raises(KafkaError) as caught:
            target(broker, DIRECTORIES[1])
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.abort()

    run(main())


def test_a_full_disk_delays_a_move_and_a_failing_one_ends_it() -> None:
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        append(partition, b"a")
        first, second = DIRECTORIES[1:]  # the first directory has the metadata, and the partition
        assert directory_of(broker, TOPIC, 0) == DIRECTORIES[0]
        disk.fail("append", errno.ENOSPC, f"{first}/*.log", times=2)
        broker.node.replication.moves.move(partition, target(broker, first))
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert directory_of(broker, TOPIC, 0) == first
        disk.fail("append", errno.EIO, f"{second}/*", times=None)
        broker.node.replication.moves.move(partition, target(broker, second))
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert directory_of(broker, TOPIC, 0) == first and values(partition) == [b"a"]
        broker.abort()

    run(main())


def test_a_log_that_cannot_be_read_ends_its_move_and_fails_no_other_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition = get(broker)
        append(partition, b"a")
        old, new = directory_of(broker, TOPIC, 0), elsewhere(partition)

        def fail(piece: FileSlice) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(FileSlice, "read", fail)
            broker.node.replication.moves.move(partition, target(broker, new))
            await wait_for(lambda: not list(broker.node.replication.moves))
        assert target(broker, new).failure is None and directory_of(broker, TOPIC, 0) == old
        broker.node.replication.moves.move(partition, target(broker, new))
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert directory_of(broker, TOPIC, 0) == new and values(partition) == [b"a"]
        await broker.stop(1.0)

    run(main())


@pytest.mark.parametrize("operation", ["open", "open_read", "read", "read_at"])
def test_a_disk_that_fails_is_not_blamed_on_the_one_that_gets_the_replica(operation: str) -> None:
    # That is when somebody moves replicas to another disk. Indexes are read, too, not records alone.
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        partition.log.settings = replace(partition.log.settings, segment_bytes=300)
        for number in range(20):
            append(partition, b"%d" % number)
        partition.log.flush()
        broker.abort()
        disk.crash(lose_unsynced=False)
        broker = await started(disk)
        partition = get(broker)
        for segment in partition.log.segments[:-1]:
            segment.unload_indexes()
        new = elsewhere(partition)
        disk.fail(operation, errno.EIO, f"{partition.log.directory}/*", times=None)
        broker.node.replication.moves.move(partition, target(broker, new))
        await wait_for(lambda: not list(broker.node.replication.moves))
        await settled()
        assert target(broker, new).failure is None
        broker.abort()

    run(main())


def test_a_move_waits_while_its_log_cannot_be_read_for_want_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "LAST_STEP_BYTES", 300)
    read_piece = FileSlice.read
    shortages = [OSError(errno.EMFILE, "Too many open files")]

    def read_at_second_attempt(piece: FileSlice) -> bytes:
        if shortages:
            raise shortages.pop()
        return read_piece(piece)

    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition = get(broker)
        for number in range(100):
            append(partition, b"%d" % number)
        new = elsewhere(partition)
        with monkeypatch.context() as patched:
            patched.setattr(FileSlice, "read", read_at_second_attempt)
            broker.node.replication.moves.move(partition, target(broker, new))
            await wait_for(lambda: not list(broker.node.replication.moves))
        assert not shortages and directory_of(broker, TOPIC, 0) == new
        await broker.stop(1.0)

    run(main())


def test_a_truncation_while_a_move_waits_for_room_begins_the_copy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "STEP_BYTES", 2000)
    monkeypatch.setattr(moves, "LAST_STEP_BYTES", 300)

    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        for number in range(200):
            append(partition, b"%d" % number)
        new = elsewhere(partition)
        broker.node.replication.moves.move(partition, target(broker, new))
        (move,) = broker.node.replication.moves
        await wait_for(lambda: move.copy is not None and move.copy.end_offset > 20)
        disk.fail("append", errno.ENOSPC, f"{new}/*.log", times=None)
        await asyncio.sleep(0.5)  # the move waits for a second then
        assert list(broker.node.replication.moves) == [move]
        truncate_to(partition.log, 10)
        for _ in range(200):
            append(partition, b"other")
        disk.heal()
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert directory_of(broker, TOPIC, 0) == new
        assert values(partition) == [*(b"%d" % number for number in range(10)), *[b"other"] * 200]
        await broker.stop(1.0)

    run(main())


def test_a_truncation_begins_the_copy_again() -> None:
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk, replica_alter_log_dirs_io_max_bytes_per_second="100000")
        await create(broker, TOPIC)
        partition = get(broker)
        for number in range(2000):
            append(partition, b"%d" % number)
        broker.node.replication.moves.move(partition, target(broker, elsewhere(partition)))
        await asyncio.sleep(0.05)
        truncate_to(partition.log, 10)
        append(partition, b"other")
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert values(partition) == [*(b"%d" % number for number in range(10)), b"other"]
        await broker.stop(1.0)

    run(main())


def test_a_truncation_while_a_thread_copies_begins_the_copy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # The thread reads what was written over the records that were cut off, from the middle of a batch on.
    monkeypatch.setattr(moves, "STEP_BYTES", 2000)
    monkeypatch.setattr(moves, "LAST_STEP_BYTES", 300)
    copy_pieces = copying.append_pieces

    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC)
        partition = get(broker)
        for number in range(200):
            append(partition, b"%d" % number)

        def truncate_and_copy(copy: Log, pieces: list[FileSlice], now_ms: int) -> None:
            if copy.end_offset and not partition.log.truncations:
                truncate_to(partition.log, 10)
                append(partition, b"other" * 10_000)
            copy_pieces(copy, pieces, now_ms)

        monkeypatch.setattr(copying, "append_pieces", truncate_and_copy)
        new = elsewhere(partition)
        broker.node.replication.moves.move(partition, target(broker, new))
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert directory_of(broker, TOPIC, 0) == new
        assert values(partition) == [*(b"%d" % number for number in range(10)), b"other" * 10_000]
        await broker.stop(1.0)

    run(main())


def test_a_topic_that_is_deleted_takes_its_copy_along() -> None:
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        partition = get(broker)
        append(partition, b"a")
        new = elsewhere(partition)
        broker.node.replication.moves.move(partition, target(broker, new))
        topic = image_of(broker)
        await broker.node.metadata.change(lambda image: delete_topic(image, topic.id))
        await wait_for(lambda: not list(broker.node.replication.moves))
        await wait_for(lambda: not disk.exists(f"{new}/{TOPIC}-0"))
        await broker.stop(1.0)

    run(main())


def test_a_replica_that_leaves_as_its_move_begins_fails_no_directory() -> None:
    # Its files have other names then: a move that looked for them took both directories for broken, and the broker
    # ended. They are opened when they are needed after a start.
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC)
        append(get(broker), b"a")
        get(broker).log.roll(0)
        append(get(broker), b"b")
        await broker.stop(1.0)
        broker = await started(disk)
        partition = get(broker)
        replication, new = broker.node.replication, elsewhere(partition)
        replication.moves.move(partition, target(broker, new))
        replication.reconciliation._remove_replicas(image_of(broker), [0])
        await wait_for(lambda: not list(replication.moves))
        await asyncio.sleep(1)
        assert [each.failure for each in broker.node.replicas.directories] == [None] * 3
        assert not disk.exists(f"{new}/{TOPIC}-0")
        with pytest.raises(KafkaError, match="not in use any more"):
            partition.log.read(0, 100, up_to=1, at_least_one=True)
        await broker.stop(1.0)

    run(main())


def test_a_throttled_move_takes_its_time() -> None:
    async def main() -> None:
        disk = new_disk()
        broker = await started(disk, replica_alter_log_dirs_io_max_bytes_per_second="50000")
        await create(broker, TOPIC)
        partition = get(broker)
        for _ in range(400):
            append(partition, b"x" * 1000)
        began = asyncio.get_running_loop().time()
        broker.node.replication.moves.move(partition, target(broker, elsewhere(partition)))
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert 4 < asyncio.get_running_loop().time() - began < 12
        await broker.stop(1.0)

    run(main())


def test_a_move_goes_on_when_its_throttle_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "STEP_BYTES", 200_000)

    async def main() -> None:
        broker = await started(new_disk(), replica_alter_log_dirs_io_max_bytes_per_second="1")
        await create(broker, TOPIC)
        partition = get(broker)
        for _ in range(400):
            append(partition, b"x" * 1000)
        broker.node.replication.moves.move(partition, target(broker, elsewhere(partition)))
        await asyncio.sleep(100)
        (move,) = broker.node.replication.moves
        assert 0 < move.lag < 400
        name = "replica.alter.log.dirs.io.max.bytes.per.second"
        raised = [ConfigAlteration(name, Operation.SET, "100000000")]
        number = str(broker.node.broker_id)
        await broker.node.metadata.change(lambda image: alter_brokers(image, number, raised, broker.node.config))
        changed = asyncio.get_running_loop().time()
        await wait_for(lambda: not list(broker.node.replication.moves))
        assert asyncio.get_running_loop().time() - changed < 5
        await broker.stop(1.0)

    run(main())


def test_a_replica_that_is_not_here_yet_is_created_where_it_was_wanted() -> None:
    async def main() -> None:
        broker = await started(new_disk())
        for index in range(4):
            broker.node.replication.moves.prefer(TopicPartition(TOPIC, index), target(broker, DIRECTORIES[2]))
        await create(broker, TOPIC, 5)
        assert [directory_of(broker, TOPIC, index) for index in range(4)] == [DIRECTORIES[2]] * 4
        assert directory_of(broker, TOPIC, 4) != DIRECTORIES[2]
        await broker.stop(1.0)

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_what_was_on_one_disk_is_on_the_other_before_it_is_removed_there(seed: int) -> None:
    async def main() -> None:
        disk = SimulatedDisk(Random(seed))
        broker = await started(disk)
        await create(broker, TOPIC, 1, retention_ms="-1")
        partition = get(broker)
        for number in range(5):
            append(partition, b"%d" % number)
        partition.flushing.request()
        await partition.durable.reach(5)
        home = directory_of(broker, TOPIC, 0)
        broker.node.replication.moves.move(partition, target(broker, elsewhere(partition)))
        await wait_for(lambda: not any(name.startswith(TOPIC) for name in disk.list(home)))
        disk.crash(lose_unsynced=True)
        broker.abort()
        again = await started(disk)
        assert values(get(again)) == [b"%d" % number for number in range(5)]
        await again.stop(1)

    run(main())
