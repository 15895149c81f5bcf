"""A topic is deleted, and maybe created again under its name: what is left of the old one never is the new one's."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.cluster.topics import delete_topic
from ottla.errors import KafkaError
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.deleted_partitions import RENAMED_AT_ONCE
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.log_starts import LogStarts
from ottla.replication.partition import Partition
from ottla.replication.removals import Removals
from ottla.replication.replicas import Replicas
from ottla.replication.truncation import Truncations
from tests.simulation.disk import SimulatedDisk
from tests.unit.replication import three_directories
from tests.unit.replication.three_directories import TOPIC, append, create, settled, started
from tests.unit.storage.logs import new_disk

MANY = 2 * RENAMED_AT_ONCE + 10
DATA = ("/data",)


def test_a_large_topic_is_deleted_and_created_again_at_once() -> None:
    # Not all directories have been renamed when the new partitions come: each of them is empty all the same, and what
    # was there before is removed when file.delete.delay.ms is over.
    async def run() -> None:
        disk = new_disk()
        broker = await started(disk, DATA)
        await create(broker, TOPIC, MANY)
        await broker.node.replication.reconciliation.wait_until_created()
        replicas = broker.node.replicas
        for index in range(MANY):
            append(replicas.get(TOPIC, index), b"old")
        await broker.node.metadata.change(partial(delete_topic, topic_id=replicas.get(TOPIC, 0).topic_id))
        live = [name for name in disk.list("/data") if name.startswith(TOPIC) and not name.endswith("-delete")]
        assert 0 < len(live) <= MANY - RENAMED_AT_ONCE, "the rest waits for another turn"
        await create(broker, TOPIC, MANY)
        await broker.node.replication.reconciliation.wait_until_created()
        await settled()
        assert [replicas.get(TOPIC, index).log.end_offset for index in range(MANY)] == [0] * MANY
        old = [name for name in disk.list("/data") if name.endswith("-delete")]
        assert len(old) == MANY
        await broker.node.replication.upkeep.remove_deleted()
        assert disk.exists(f"/data/{old[0]}"), "not before its time"
        await broker.node.replication.removals.run_due(float("inf"))
        assert not [name for name in disk.list("/data") if name.endswith("-delete")]
        await broker.stop(1)
        broker = await started(disk, DATA)
        assert [broker.node.replicas.get(TOPIC, index).log.end_offset for index in range(MANY)] == [0] * MANY
        broker.abort()

    asyncio.run(run())


@pytest.mark.parametrize("reassigned", (False, True))
def test_records_that_were_read_can_be_sent_after_their_partition_is_removed(reassigned: bool) -> None:
    # An answer waits for its turn on the connection while the topic is deleted, or the replica moved to another broker.
    async def run() -> None:
        disk = new_disk()
        broker = await started(disk, DATA)
        await create(broker, TOPIC)
        partition = broker.node.replicas.get(TOPIC, 0)
        append(partition, b"value")
        records = partition.read(0, 1000, read_committed=False, at_least_one=True).records
        assert records is not None
        content = records.read()
        if reassigned:
            topic = broker.node.image.topics_by_name[TOPIC]
            broker.node.replication.reconciliation._remove_replicas(topic, (0,))
        else:
            await broker.node.metadata.change(partial(delete_topic, topic_id=partition.topic_id))
        assert disk.list("/data/" + next(name for name in disk.list("/data") if name.endswith("-delete")))
        assert records.read() == content
        await broker.node.replication.removals.run_due(float("inf"))
        assert not [name for name in disk.list("/data") if name.endswith("-delete")]
        with pytest.raises(OSError):
            records.read()
        broker.abort()

    asyncio.run(run())


def test_a_checkpoint_in_a_thread_does_not_outlive_its_topic() -> None:
    # It was begun before the topic was deleted, and is written when a new one of its name is there: that one waits for
    # it, and inherits nothing, not even if the process dies right then.
    async def run() -> None:
        disk = new_disk()
        broker = await started(disk, DATA)
        await create(broker, TOPIC)
        replicas = broker.node.replicas
        partition = replicas.get(TOPIC, 0)
        for _ in range(3):
            append(partition, b"old")
        partition.delete_records(3)
        waiting: list[tuple[asyncio.Future[Any], Any, Any]] = []

        def slow(function: Any, *arguments: Any) -> asyncio.Future[Any]:
            waiting.append((asyncio.get_running_loop().create_future(), function, arguments))
            return waiting[-1][0]

        checkpoints = broker.node.replication.checkpoints
        quick, checkpoints._offload = checkpoints._offload, slow
        writing = asyncio.ensure_future(broker.node.replication.log_starts.write())
        await settled()
        await broker.node.metadata.change(partial(delete_topic, topic_id=partition.topic_id))
        await create(broker, TOPIC)
        with pytest.raises(KafkaError):
            replicas.get(TOPIC, 0)
        checkpoints._offload = quick
        ((future, function, arguments),) = waiting
        future.set_result(function(*arguments))
        await writing
        append(replicas.get(TOPIC, 0), b"new")
        broker.abort()
        disk.crash(lose_unsynced=False)
        broker = await started(disk, DATA)
        log = broker.node.replicas.get(TOPIC, 0).log
        assert (log.log_start_offset, log.end_offset) == (0, 1)
        broker.abort()

    asyncio.run(run())


def test_offsets_that_wait_for_another_directory_do_not_outlive_their_topic() -> None:
    # All directories' offsets are collected first, and written one after the other.
    async def run() -> None:
        broker = await three_directories.started(new_disk())
        for topic in ("first", "second"):
            await create(broker, topic)
        replicas = broker.node.replicas
        old = replicas.get("second", 0)
        append(old, b"old")
        checkpoints, threads = broker.node.replication.checkpoints, SlowThreads()
        quick = checkpoints._offload
        checkpoints._offload = lambda function, *arguments: threads(partial(function, *arguments))
        writing = asyncio.ensure_future(checkpoints.write_high_watermarks())
        await settled()
        await broker.node.metadata.change(partial(delete_topic, topic_id=old.topic_id))
        await create(broker, "second")
        with pytest.raises(KafkaError):
            replicas.get("second", 0)
        checkpoints._offload = quick
        await threads.run()
        await writing
        assert replicas.get("second", 0) is not old
        key = [old.topic_partition]
        assert not any(directory.mentions(key) for directory in replicas.directories)
        broker.abort()

    asyncio.run(run())


class SlowThreads:
    """Keeps what it is told to do in a thread until the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.Future[Any], Callable[..., Any]]] = []

    def __call__(self, function: Callable[..., Any]) -> asyncio.Future[Any]:
        self.waiting.append((asyncio.get_running_loop().create_future(), function))
        return self.waiting[-1][0]

    async def run(self) -> None:
        ((future, function),) = self.waiting
        self.waiting.clear()
        try:
            future.set_result(function())
        except OSError as error:
            future.set_exception(error)
        await settled()


def flush(partition: Partition, threads: SlowThreads) -> None:
    partition.flushing._offload = threads
    partition.flushing.request()


def truncate(partition: Partition, threads: SlowThreads) -> None:
    replicas = Replicas([])
    failures = DirectoryFailures(replicas, threads)
    checkpoints = Checkpoints(replicas, failures, threads)
    log_starts = LogStarts(replicas, checkpoints, Removals(threads), failures)
    Truncations(threads, checkpoints, log_starts).truncate(partition, 1)


def list_files(disk: SimulatedDisk, directory: str) -> dict[str, bytes]:
    return {name: disk.read(f"{directory}/{name}") for name in disk.list(directory)}


@pytest.mark.parametrize("work", [flush, truncate])
@pytest.mark.parametrize("way", ["deleted", "moved away and back", "set aside"])
def test_a_thread_that_works_for_a_removed_partition_does_not_touch_a_new_one(
    work: Callable[[Partition, SlowThreads], None], way: str
) -> None:
    # It finds files by their paths, so nobody gets these paths before it is done. Both would have left the old leader
    # epochs in the new partition's directory, and a truncation would have removed its records.
    async def run() -> None:
        disk = new_disk()
        broker = await started(disk, DATA)
        await create(broker, TOPIC)
        replicas, reconciliation = broker.node.replicas, broker.node.replication.reconciliation
        partition, threads = replicas.get(TOPIC, 0), SlowThreads()
        for _ in range(3):
            append(partition, b"old")
        topic = broker.node.image.topics_by_name[TOPIC]
        work(partition, threads)
        if way == "deleted":
            await broker.node.metadata.change(partial(delete_topic, topic_id=topic.id))
            await create(broker, TOPIC)
        elif way == "set aside":
            reconciliation._set_aside_topic(topic.id)
            reconciliation._place(topic)
        else:
            reconciliation._remove_replicas(topic, (0,))
            reconciliation._place(topic)
        with pytest.raises(KafkaError):
            replicas.get(TOPIC, 0)
        assert not disk.exists(partition.log.directory)
        await threads.run()
        new = replicas.get(TOPIC, 0)
        assert new is not partition and new.log.directory == partition.log.directory
        assert append(new, b"new") == 0
        new.flushing.request()
        await new.durable.reach(1)
        before = list_files(disk, new.log.directory)
        await settled()
        assert not threads.waiting and list_files(disk, new.log.directory) == before
        broker.abort()

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(6))
def test_a_lost_renaming_is_done_again(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    # The deletion is in the metadata log, the new name of the directory was not synced when the power went: the next
    # start knows that the topic was deleted, and does not keep it as something that belongs to nobody.
    async def run() -> None:
        disk = new_disk(seed)
        broker = await started(disk, DATA)
        await create(broker, TOPIC)
        partition = broker.node.replicas.get(TOPIC, 0)
        append(partition, b"old")
        partition.log.flush()
        await broker.node.metadata.change(partial(delete_topic, topic_id=partition.topic_id))
        broker.abort()
        disk.crash(lose_unsynced=True)
        broker = await started(disk, DATA)
        left = [name for name in disk.list("/data") if name.startswith(TOPIC)]
        assert len(left) == 1 and left[0].endswith("-delete")
        await broker.node.replication.removals.run_due(float("inf"))
        assert not [name for name in disk.list("/data") if name.startswith(TOPIC)]
        broker.abort()

    asyncio.run(run())
    assert "belongs to no topic" not in caplog.text
