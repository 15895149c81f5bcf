"""Truncations beside flushes and checkpoints: what a crash finds on disk afterwards."""

import asyncio
import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.cluster.image import PartitionImage
from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.log_starts import LogStarts
from ottla.replication.partition import Partition
from ottla.replication.removals import Removals
from ottla.replication.replicas import Replicas
from ottla.replication.truncation import Truncations
from ottla.storage.directories import DataDirectory
from ottla.storage.log import Log, LogSettings
from ottla.storage.opening import create_log, open_log
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import simulate

TOPIC, TOPIC_ID = "orders", b"o" * 16
NOW_MS = 1_700_000_000_000
OWN, LEADER = 1, 2
SMALL = LogSettings(segment_bytes=400)
OLD_EPOCH, NEW_EPOCH = 3, 7


class Work:
    """Functions that were handed to a thread, to be run when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]]] = []
        self.runs_at_once = True

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((function, arguments, future))
        if self.runs_at_once:
            self.run()
        return future

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for function, arguments, future in waiting:
            future.set_result(function(*arguments))

    @property
    def names(self) -> list[str]:
        return [function.__qualname__ for function, _, _ in self.waiting]


class Follower:
    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(1))
        self.disk.make_directory("/data")
        self.directory = DataDirectory.open(self.disk, "/data")
        self.replicas = Replicas([self.directory])
        self.work = Work()
        failures = DirectoryFailures(self.replicas, self.work)
        self.checkpoints = Checkpoints(self.replicas, failures, self.work)
        self.log_starts = LogStarts(self.replicas, self.checkpoints, Removals(self.work), failures)
        self.truncations = Truncations(self.work, self.checkpoints, self.log_starts)
        log = create_log(self.disk, f"/data/{TOPIC}-0", TOPIC_ID, SMALL, NOW_MS)
        config = TopicConfig.of({}, BrokerConfig.of({}))
        self.partition = Partition(TOPIC, TOPIC_ID, 0, log, config, OWN, self.work, 0)
        self.replicas.add(self.partition, self.directory)
        self.partition.become(PartitionImage((OWN, LEADER), (OWN, LEADER), LEADER, NEW_EPOCH))

    def copy(self, count: int, epoch: int) -> None:
        """Append records as the leader of that epoch has sent them."""
        for _ in range(count):
            data = batch.encode([(None, b"v" * 50, (), NOW_MS)])
            batch.stamp(data, self.partition.log.end_offset, epoch)
            self.partition.append_as_follower(bytes(data), NOW_MS)

    def open_after_crash(self) -> Log:
        path = f"/data/{TOPIC}-0"
        recovery_point = self.directory.recovery_points.get(self.partition.topic_partition, 0)
        return open_log(
            self.disk,
            path,
            SMALL,
            clean=False,
            recovery_point=recovery_point,
            log_start_offset=self.directory.log_starts.get(self.partition.topic_partition, 0),
            now_ms=NOW_MS,
        )


def test_a_crash_after_a_truncation_loses_no_leader_epoch() -> None:
    # The records of the new epoch are not flushed, and a checkpoint from before the truncation would say that they are.
    async def scenario() -> None:
        follower = Follower()
        partition = follower.partition
        follower.copy(20, OLD_EPOCH)
        partition.flushing.request()
        await partition.durable.reach(20)
        await follower.checkpoints.write_recovery_points()
        assert follower.checkpoints.recovery_point_on_disk(partition) == 20
        follower.truncations.truncate(partition, 2)
        await follower.truncations.finish()
        follower.work.runs_at_once = False
        follower.copy(25, NEW_EPOCH)
        assert partition.log.epochs.entries == [(OLD_EPOCH, 0), (NEW_EPOCH, 2)]
        assert follower.open_after_crash().epochs.entries == [(OLD_EPOCH, 0), (NEW_EPOCH, 2)]

    simulate(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_a_checkpoint_under_way_does_not_outlast_a_truncation(fails: bool) -> None:
    # It has collected the recovery point from before the truncation, and may bring it to the disk any time after, even
    # if it reports an error: then the last step that failed may have been the fsync of the directory.
    async def scenario() -> None:
        follower = Follower()
        partition, work, checkpoints = follower.partition, follower.work, follower.checkpoints
        follower.copy(20, OLD_EPOCH)
        partition.flushing.request()
        await partition.durable.reach(20)
        work.runs_at_once = False
        writing = asyncio.ensure_future(checkpoints.write_recovery_points())
        await asyncio.sleep(0)
        ((write, arguments, future),) = work.waiting
        work.waiting.clear()
        follower.truncations.truncate(partition, 2)
        assert work.names == ["Truncation.run"]
        work.run()
        await asyncio.sleep(0)
        assert follower.truncations.find(partition) is not None
        if fails:
            follower.disk.fail("fsync_directory", errno.ENOSPC, "/data", times=1)
            with pytest.raises(OSError) as full:
                write(*arguments)
            future.set_exception(full.value)
        else:
            future.set_result(write(*arguments))
        await writing
        assert follower.truncations.find(partition) is not None
        work.runs_at_once = True
        work.run()
        await follower.truncations.finish()
        assert not partition.log.has_failed and checkpoints.recovery_point_on_disk(partition) == 2
        follower.copy(25, NEW_EPOCH)
        assert follower.open_after_crash().epochs.entries == [(OLD_EPOCH, 0), (NEW_EPOCH, 2)]

    simulate(scenario())


@pytest.mark.parametrize("fails", [None, False, True])
def test_a_crash_after_a_log_has_started_anew_loses_no_record(fails: bool | None) -> None:
    # After an unclean election the leader's log may start before the follower's did. A log start from before that, on
    # disk or in a checkpoint under way, would make a crash take all copied records for deleted ones.
    async def scenario() -> None:
        follower = Follower()
        partition, work = follower.partition, follower.work
        follower.copy(40, OLD_EPOCH)
        partition.follow_leader(40, 30)
        if fails is None:
            await follower.log_starts.write()
        else:
            work.runs_at_once = False
            writing = asyncio.ensure_future(follower.log_starts.write_periodically())
            await asyncio.sleep(0)
            ((write, arguments, future),) = work.waiting
            work.waiting.clear()
        follower.truncations.start_anew(partition, 5, NOW_MS)
        if fails is not None:
            work.run()
            await asyncio.sleep(0)
            if fails:
                follower.disk.fail("fsync_directory", errno.ENOSPC, "/data", times=1)
                with pytest.raises(OSError) as full:
                    write(*arguments)
                future.set_exception(full.value)
            else:
                future.set_result(write(*arguments))
            work.runs_at_once = True
            await writing
        await follower.truncations.finish()
        assert not partition.log.has_failed
        follower.copy(10, NEW_EPOCH)
        log = follower.open_after_crash()
        assert (log.log_start_offset, log.end_offset) == (5, 15)

    simulate(scenario())


def test_a_crash_after_a_truncation_shows_nothing_that_is_not_committed() -> None:
    # After an unclean election records are gone that were below the high watermark. What comes in their place is not
    # committed yet, and a broker that starts takes the high watermark from its disk.
    async def scenario() -> None:
        follower = Follower()
        partition = follower.partition
        follower.copy(20, OLD_EPOCH)
        partition.follow_leader(20, 0)
        await follower.checkpoints.write_high_watermarks()
        assert follower.directory.high_watermarks[partition.topic_partition] == 20
        follower.truncations.truncate(partition, 5)
        await follower.truncations.finish()
        follower.copy(20, NEW_EPOCH)
        assert follower.directory.high_watermarks[partition.topic_partition] == 5

    simulate(scenario())


@pytest.mark.parametrize("is_under_way", [False, True])
def test_what_is_copied_after_a_log_has_started_anew_does_not_count_as_compacted(is_under_way: bool) -> None:
    # Compaction would remove tombstones from it, and leave the values before them.
    async def scenario() -> None:
        follower = Follower()
        partition, work = follower.partition, follower.work
        follower.copy(40, OLD_EPOCH)
        partition.log.first_dirty_offset = 30
        work.runs_at_once = not is_under_way
        writing = asyncio.ensure_future(follower.checkpoints.write_clean_ends())
        await asyncio.sleep(0)
        waiting, work.waiting = work.waiting, []
        work.runs_at_once = True
        follower.truncations.start_anew(partition, 5, NOW_MS)
        for write, arguments, future in waiting:
            future.set_result(write(*arguments))
        await writing
        await follower.truncations.finish()
        follower.copy(40, NEW_EPOCH)
        assert follower.directory.clean_ends == {partition.topic_partition: 5}

    simulate(scenario())


def test_a_truncation_waits_for_a_flush_and_holds_the_next() -> None:
    # Both write the leader epochs, through the same temporary file.
    async def scenario() -> None:
        follower = Follower()
        partition, work = follower.partition, follower.work
        follower.copy(3, OLD_EPOCH)
        work.runs_at_once = False
        partition.flushing.request()
        assert work.names == ["Flush.run"]
        follower.truncations.truncate(partition, 2)
        assert work.names == ["Flush.run"]
        work.run()
        await asyncio.sleep(0)
        assert work.names == ["Truncation.run"]
        partition.flushing.request()
        assert work.names == ["Truncation.run"]
        work.run()
        await asyncio.sleep(0)
        assert work.names == ["Flush.run"], "the one that was held back"
        work.run()
        await partition.durable.reach(2)
        assert follower.truncations.find(partition) is None
        assert partition.log.recovery_point == partition.log.end_offset == 2

    simulate(scenario())


def test_a_shutdown_does_not_wait_for_a_truncation_on_a_full_disk() -> None:
    async def scenario() -> None:
        follower = Follower()
        partition, work = follower.partition, follower.work
        follower.copy(3, OLD_EPOCH)
        work.runs_at_once = False
        follower.truncations.truncate(partition, 2)
        _, _, future = work.waiting.pop()
        future.set_exception(OSError(errno.ENOSPC, "full"))
        async with asyncio.timeout(60):
            await follower.truncations.finish()
        assert partition.log.has_failed, "or a clean shutdown would vouch for records that were cut off"

    simulate(scenario())


def test_what_a_truncation_drops_makes_room_for_its_recovery_point() -> None:
    # The truncation waited for the recovery point, that for room, and the room was what the truncation had dropped.
    async def scenario() -> None:
        follower = Follower()
        partition, disk = follower.partition, follower.disk
        follower.copy(20, OLD_EPOCH)
        partition.flushing.request()
        await partition.durable.reach(20)
        await follower.checkpoints.write_recovery_points()
        for operation in ("replace", "create", "append"):
            disk.fail(operation, errno.ENOSPC, "/data/*", times=None)
        follower.truncations.truncate(partition, 2)
        removals = Removals(follower.work)
        for _ in range(100):
            await asyncio.sleep(1)
            removals.take_dropped(partition)
            await removals.run_due()
            if not any(name.endswith(".deleted") for name in disk.list(partition.log.directory)):
                disk.heal()
        running = follower.truncations.find(partition)
        follower.truncations.cancel()
        assert running is None and follower.checkpoints.recovery_point_on_disk(partition) <= 2

    simulate(scenario())


def test_a_truncation_that_waits_for_room_ends_with_its_partition() -> None:
    # The topic is deleted and created again: the files in its directory are those of the new one.
    async def scenario() -> None:
        follower = Follower()
        partition, work, disk = follower.partition, follower.work, follower.disk
        follower.copy(20, OLD_EPOCH)
        await asyncio.sleep(0)
        work.runs_at_once = False
        follower.truncations.truncate(partition, 2)
        _, _, future = work.waiting.pop()
        future.set_exception(OSError(errno.ENOSPC, "full"))
        await asyncio.sleep(0)
        running = follower.truncations.find(partition)
        partition.retire(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        disk.rename(partition.log.directory, "/data/deleted")
        new = create_log(disk, partition.log.directory, b"n" * 16, SMALL, NOW_MS)
        data = batch.encode([(None, b"new", (), NOW_MS)])
        batch.stamp(data, 0, NEW_EPOCH)
        new.append_as_follower(bytes(data), NOW_MS)
        await asyncio.sleep(5)
        assert work.names == [] and running is not None and running.done()
        assert follower.truncations.find(partition) is None

    simulate(scenario())


def test_a_truncation_that_waits_for_room_does_not_outlive_the_broker() -> None:
    async def scenario() -> None:
        follower = Follower()
        partition, work = follower.partition, follower.work
        follower.copy(20, OLD_EPOCH)
        await asyncio.sleep(0)
        work.runs_at_once = False
        follower.truncations.truncate(partition, 2)
        _, _, future = work.waiting.pop()
        future.set_exception(OSError(errno.ENOSPC, "full"))
        await asyncio.sleep(0)
        follower.truncations.cancel()
        await asyncio.sleep(5)
        assert work.names == []

    simulate(scenario())
