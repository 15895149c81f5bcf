"""A broker whose disk has no room, or which has no descriptors, at any operation: everything goes on by itself.

Each run does the same work: topics are created, written to, compacted, moved to another data directory and deleted,
retention drops segments. In one of the disk's operations, and in those that follow it, the disk refuses. Afterwards no
data directory is offline, no log refuses records, nothing waits for a restart.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.topics import NewTopic, create_topic, delete_topic
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import check, encode
from ottla.replication.deleted_partitions import RENAMED_AT_ONCE
from ottla.replication.partition import Partition
from ottla.storage import names
from ottla.storage.log import Log
from ottla.topic_partition import TopicPartition
from tests.samples import choose_sample
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.handlers.one_broker import FixedClock, listen, offload
from tests.unit.storage.logs import new_disk, records

DIRECTORIES = ("/one", "/two")
NOW = FixedClock().now_ms()
LASTING = (1, 3, None)
"""How many operations find no room. None: all, for some seconds."""
SHORTAGE_S = 3.0
PATIENCE_S = 100.0
"""Virtual seconds."""
SEGMENTS = {"internal.segment.bytes": "600", "file.delete.delay.ms": "100"}


class Work:
    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.broker = Broker(
            BrokerConfig.of({"log.dirs": ",".join(DIRECTORIES), "log.segment.delete.delay.ms": "1000"}),
            DIRECTORIES[0],
            disk=disk,
            clock=FixedClock(),
            random=Random(1),
            offload=offload,
            listen=listen,
            machine_code=False,
        )
        self.acknowledged: dict[str, dict[int, bytes]] = {}

    def get(self, topic: str) -> Partition:
        return self.broker.node.replicas.get(topic, 0)

    async def insist(self, action: Callable[[], Awaitable[Any]]) -> None:
        """Do what a client does, again if a shortage prevents it. It lasts for some seconds."""
        healing = asyncio.get_running_loop().call_later(SHORTAGE_S, self.disk.heal)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await self._succeeds(action):
                    await asyncio.sleep(0.5)
        finally:
            healing.cancel()

    async def _succeeds(self, action: Callable[[], Awaitable[Any]]) -> bool:
        try:
            await action()
        except KafkaError as error:
            expected = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert error.code in (*expected, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), error
            return False
        return True

    async def wait_for(self, is_true: Callable[[], object], what: str) -> None:
        began = asyncio.get_running_loop().time()
        while not is_true():
            waited_s = asyncio.get_running_loop().time() - began
            if waited_s > SHORTAGE_S:
                self.disk.heal()
            assert waited_s < PATIENCE_S, what
            await asyncio.sleep(0.1)

    async def create(self, topic: str, **configs: str) -> None:
        new = NewTopic(topic, 1, configs={**SEGMENTS, **{key.replace("_", "."): configs[key] for key in configs}})
        node = self.broker.node

        async def change() -> None:
            if node.metadata.image.topic(topic) is None:
                await node.metadata.change(lambda image: create_topic(image, new, node.config, node.random))

        await self.insist(change)
        self.acknowledged[topic] = {}

    async def delete(self, topic: str) -> None:
        node = self.broker.node
        found = node.metadata.image.topic(topic)
        assert found is not None

        async def change() -> None:
            if node.metadata.image.topic(topic) is not None:
                await node.metadata.change(lambda image: delete_topic(image, found.id))

        await self.insist(change)

    async def produce(self, topic: str, count: int) -> None:
        for number in range(count):
            value = b"%03d" % number + b"." * 60

            async def append(number: int = number, value: bytes = value) -> None:
                data = bytearray(encode([(b"k%d" % (number % 3), value, (), NOW)]))
                partition = self.get(topic)
                appended = partition.append(memoryview(data), check(data), NOW, -1)
                acks = partition.wait_for_acks(appended, -1)
                if acks is not None:
                    await acks
                self.acknowledged[topic][appended.base_offset] = value

            await self.insist(append)

    def read(self, topic: str) -> dict[int, bytes | None]:
        return {record.offset: record.value for record in records(self.get(topic).log)}

    def check(self) -> None:
        for topic, acknowledged in self.acknowledged.items():
            log, found = self.get(topic).log, self.read(topic)
            if topic == "compacted":
                kept: dict[bytes, int] = {}
                for offset, value in acknowledged.items():
                    kept[b"k%d" % (int(value[:3]) % 3)] = offset
                acknowledged = {offset: acknowledged[offset] for offset in kept.values()}
            wanted = {offset: value for offset, value in acknowledged.items() if offset >= log.log_start_offset}
            assert found.items() >= wanted.items(), topic

    def list_marked(self) -> list[str]:
        return [name for path in DIRECTORIES for name in self.disk.list(path) if name.endswith(("-delete", "-stray"))]


async def play(work: Work) -> None:
    broker, node = work.broker, work.broker.node
    replication = node.replication
    await work.create("flushed", flush_messages="1")
    await work.create("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    await work.create("expiring", retention_bytes="600")
    for topic in ("flushed", "compacted", "expiring"):
        await work.produce(topic, 14)
    await replication.upkeep.expire_segments()
    await node.compaction.run()
    target = next(path for path in DIRECTORIES if not work.get("flushed").log.directory.startswith(path))
    replication.moves.move(work.get("flushed"), replication.moves.find_directory(target))
    await work.wait_for(lambda: not list(replication.moves), "the move is over")
    await work.produce("flushed", 3)
    await work.delete("expiring")
    await work.create("expiring")
    await work.wait_for(lambda: 0 in node.replicas.of_topic("expiring"), "the topic is created again")
    await work.produce("expiring", 3)
    work.disk.heal()
    await asyncio.sleep(60)
    # There is room again, and time has passed.
    assert not broker.failure.done()
    assert not [directory.failure for directory in node.replicas.directories if directory.failure is not None]
    assert work.get("flushed").log.directory.startswith(target) and work.get("flushed").moving_to is None
    await replication.upkeep.expire_segments()
    await node.compaction.run()
    assert not [each for found in node.compaction.list_uncleanable().values() for each in found]
    for topic in work.acknowledged:
        assert not work.get(topic).log.has_failed
        await work.produce(topic, 2)
    assert work.get("compacted").log.first_dirty_offset > 7
    await asyncio.sleep(60)
    assert not work.list_marked()
    work.check()


def run(play: Callable[[Work], Coroutine[Any, Any, None]], after: int | None, times: int | None, ending: str) -> int:
    disk = new_disk(after or 0)

    async def main() -> None:
        work = Work(disk)
        await work.broker.start()
        if after is not None:
            disk.run_short(after, times=times)
        await play(work)
        if ending == "stop":
            await work.broker.stop(10.0)
        else:
            work.broker.abort()
        disk.crash(lose_unsynced=False)
        again = Work(disk)
        again.acknowledged = work.acknowledged
        await again.broker.start()
        assert again.broker.node.replicas.directories[0].was_clean == (ending == "stop")
        again.check()
        again.broker.abort()

    simulate(main())
    return disk.attempts


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_shortage_at_any_operation_of_a_broker_passes(ending: str, caplog: pytest.LogCaptureFixture) -> None:
    count = run(play, None, None, ending)
    assert count > 500
    caplog.set_level(logging.ERROR)
    cases = [(after, times) for after in range(count) for times in LASTING]
    for after, times in choose_sample(cases, 8, ending):
        try:
            run(play, after, times, ending)
        except BaseException as error:
            error.add_note(f"{times} operations failed after {after}")
            raise


@pytest.mark.parametrize(
    ("operation", "number", "pattern"),
    [
        ("rename", errno.ENOSPC, "*/expiring-0/*.log"),
        ("rename", errno.ENOSPC, "*/expiring-0/*.index"),
        ("reopen", errno.EMFILE, "*/expiring-0/*"),
        ("open", errno.EMFILE, "*/expiring-0/*"),
        ("rename", errno.ENOSPC, "*/expiring-0"),
        ("unlink", errno.ENOSPC, "*"),
        ("list", errno.EMFILE, "*-delete"),
    ],
)
def test_what_makes_room_takes_no_directory_offline(operation: str, number: int, pattern: str) -> None:
    # Retention and the deletion of a topic meet a shortage for a while. Afterwards their files are gone.
    async def main() -> None:
        work = Work(new_disk())
        await work.broker.start()
        await work.create("expiring", retention_ms="1000")
        await work.produce("expiring", 20)
        await work.broker.stop(10.0)
        work = Work(work.disk)  # nothing of the segments has been read yet
        await work.broker.start()
        replication = work.broker.node.replication
        work.disk.fail(operation, number, pattern, times=None)
        clock = replication.upkeep._retention_clock
        clock.now_ms = lambda: NOW + 5000  # type: ignore[method-assign]
        await replication.upkeep.expire_segments()
        await asyncio.sleep(5)
        await work.delete("expiring")
        await asyncio.sleep(5)
        work.disk.heal()
        await work.create("expiring")
        await asyncio.sleep(60)
        assert not [each for each in replication.replicas.directories if each.failure is not None]
        assert not work.list_marked()
        await work.produce("expiring", 1)
        work.check()
        work.broker.abort()

    simulate(main())


def test_a_deleted_partition_that_keeps_its_name_does_not_hold_up_the_others() -> None:
    # One of two disks is full, and has more deleted partitions than are renamed in one iteration of the loop.
    async def main() -> None:
        work = Work(new_disk())
        await work.broker.start()
        node = work.broker.node
        count = 2 * RENAMED_AT_ONCE + 20
        new = NewTopic("many", count)
        await node.metadata.change(lambda image: create_topic(image, new, node.config, node.random))
        await node.replication.reconciliation.wait_until_created()
        full = node.replicas.get("many", 0).log.directory.rpartition("/")[0]
        work.disk.fail("rename", errno.ENOSPC, f"{full}/many-*", times=None)
        await work.delete("many")
        await asyncio.sleep(5)
        left = {path: [name for name in work.disk.list(path) if name.startswith("many")] for path in DIRECTORIES}
        assert not left.pop(next(path for path in DIRECTORIES if path != full))
        assert len(left[full]) == count / 2, "these wait for room"
        work.disk.heal()
        await asyncio.sleep(5)
        assert not work.list_marked() and not [name for name in work.disk.list(full) if name.startswith("many")]
        assert not [each for each in node.replicas.directories if each.failure is not None]
        work.broker.abort()

    simulate(main())


def test_a_move_that_can_rename_and_not_sync_is_tried_again() -> None:
    # Until then the log goes on in its old place, and a start after a crash must take the copy for incomplete.
    async def main() -> None:
        work = Work(new_disk())
        await work.broker.start()
        replication = work.broker.node.replication
        await work.create("moved")
        await work.produce("moved", 3)
        target = next(path for path in DIRECTORIES if not work.get("moved").log.directory.startswith(path))
        replication.moves.move(work.get("moved"), replication.moves.find_directory(target))
        copy = f"{target}/moved-0"
        rename = work.disk.rename

        def rename_and_fail_next(source: str, target: str) -> None:
            rename(source, target)
            if source == f"{copy}/{names.MOVING}":
                work.disk.rename = rename  # type: ignore[method-assign]
                work.disk.fail("fsync_directory", errno.EMFILE, copy)

        work.disk.rename = rename_and_fail_next  # type: ignore[method-assign]
        await asyncio.sleep(0.5)
        assert list(replication.moves) and work.disk.exists(f"{copy}/{names.MOVING}")
        await work.wait_for(lambda: not list(replication.moves), "the move is over")
        assert work.get("moved").log.directory == copy
        assert not [each for each in replication.replicas.directories if each.failure is not None]
        work.check()
        work.broker.abort()

    simulate(main())


def test_a_copy_that_cannot_be_removed_yet_is_not_mistaken_for_a_new_replica() -> None:
    # The topic is deleted while its replica is moved, and created again where the copy was.
    async def main() -> None:
        work = Work(new_disk())
        await work.broker.start()
        replication = work.broker.node.replication
        await work.create("moved")
        await work.produce("moved", 3)
        target = next(path for path in DIRECTORIES if not work.get("moved").log.directory.startswith(path))
        work.disk.fail("append", errno.ENOSPC, f"{target}/moved-0*/*.log", times=None)
        work.disk.fail("list", errno.EMFILE, f"{target}/moved-0*", times=None)
        replication.moves.move(work.get("moved"), replication.moves.find_directory(target))
        await asyncio.sleep(0.5)
        await work.delete("moved")
        await asyncio.sleep(2.1)  # the move has ended, and its copy could not be removed
        work.disk.heal()
        replication.moves.prefer(TopicPartition("moved", 0), replication.moves.find_directory(target))
        await work.create("moved")
        assert work.get("moved").log.directory == f"{target}/moved-0"
        await work.produce("moved", 3)
        await asyncio.sleep(10)
        work.check()
        assert not [each for each in replication.replicas.directories if each.failure is not None]
        assert not work.list_marked()
        work.broker.abort()

    simulate(main())


def test_a_replica_that_could_not_be_created_leaves_nothing_to_remove_if_there_is_no_directory() -> None:
    # It is created in another data directory, and moved to the first one later.
    async def main() -> None:
        work = Work(new_disk())
        await work.broker.start()
        replication = work.broker.node.replication
        target = DIRECTORIES[1]
        work.disk.fail("mkdir", errno.ENOSPC, f"{target}/moved-0")
        work.disk.fail("list", errno.EMFILE, f"{target}/moved-0")
        replication.moves.prefer(TopicPartition("moved", 0), replication.moves.find_directory(target))
        await work.create("moved")
        assert work.get("moved").log.directory == f"{DIRECTORIES[0]}/moved-0"
        await work.produce("moved", 3)
        work.disk.heal()
        replication.moves.move(work.get("moved"), replication.moves.find_directory(target))
        await work.wait_for(lambda: not list(replication.moves), "the move is over")
        assert work.get("moved").log.directory == f"{target}/moved-0"
        await asyncio.sleep(10)
        work.check()
        work.broker.abort()

    simulate(main())


def test_an_append_is_acknowledged_when_its_flush_gets_a_descriptor() -> None:
    # The record is in the log by then: a client that got an error would send it twice.
    async def main() -> None:
        work = Work(new_disk())
        await work.broker.start()
        await work.create("flushed", flush_messages="1")
        await work.produce("flushed", 1)
        partition = work.get("flushed")
        data = bytearray(encode([(None, b"value", (), NOW)]))

        def fail_once(log: Log) -> None:
            monkeypatch.undo()
            raise OSError(errno.EMFILE, "too many open files")

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(Log, "start_flush", fail_once)
            acks = partition.wait_for_acks(partition.append(memoryview(data), check(data), NOW, -1), -1)
        assert acks is not None and not acks.done()
        await acks
        assert partition.log.recovery_point == 2
        work.broker.abort()

    simulate(main())
