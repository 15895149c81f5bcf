"""A data directory that fails: its partitions are offline, all others go on, a restart brings back what is there."""

import asyncio
import errno
import logging
from unittest.mock import patch

import pytest

from ottla.cluster.topics import delete_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import describe_log_dirs, describe_topic_partitions, metadata
from ottla.storage.directories import FailedDirectory
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.patience import PATIENCE_S
from tests.simulation.disk import SimulatedDisk
from tests.unit.handlers.one_broker import call
from tests.unit.replication.three_directories import (
    DIRECTORIES,
    TOPIC,
    append,
    create,
    directory_of,
    filled,
    refusal,
    settled,
    started,
)
from tests.unit.storage.logs import new_disk

OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR


def fail_everything(disk: SimulatedDisk, directory: str) -> None:
    for operation in (
        "append",
        "create",
        "fsync",
        "fsync_directory",
        "open",
        "read_at",
        "read",
        "list",
        "size",
        "rename",
        "unlink",
        "mkdir",
        "exists",
        "truncate",
        "space",
    ):
        disk.fail(operation, errno.EIO, f"{directory}*", times=None)


def test_a_write_that_fails_takes_its_directory_offline(caplog: pytest.LogCaptureFixture) -> None:
    # One line says which and why. Partitions of other directories and new topics are not touched by it.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        assert [directory_of(broker, TOPIC, index) for index in range(3)] == list(DIRECTORIES)
        disk.fail("append", errno.EIO, "/two/*.log")
        assert refusal(broker, 1) is OFFLINE
        await settled()
        assert [refusal(broker, index) for index in range(3)] == [None, OFFLINE, None]
        lines = [record.message for record in caplog.records if record.levelno == logging.ERROR]
        assert len(lines) == 1 and lines[0].startswith("/two failed, its 1 partitions are offline until a restart: ")
        await create(broker, "new", 4)
        assert {directory_of(broker, "new", index) for index in range(4)} == {"/one", "/three"}
        assert not broker.failure.done()
        broker.abort()

    asyncio.run(run())


@pytest.mark.parametrize("operation", ["append", "fsync", "read_at"])
def test_any_failing_operation_takes_the_directory_offline(operation: str) -> None:
    # An fsync above all: it is not tried again, and nothing is acknowledged after it.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        partition = broker.node.replicas.get(TOPIC, 1)
        disk.fail(operation, errno.EIO, "/two/*.log")
        if operation == "fsync":
            partition.flushing.request()
        elif operation == "append":
            assert refusal(broker, 1) is OFFLINE
        else:
            append(partition, b"a")
            with pytest.raises(Exception, match="cannot be read"):
                partition.log.find_offset_for_timestamp(0, 1)
        await settled()
        assert refusal(broker, 1) is OFFLINE
        assert refusal(broker, 0) is None
        broker.abort()

    asyncio.run(run())


def test_clients_see_no_leader_and_an_offline_replica() -> None:
    # Leader -1, LEADER_NOT_AVAILABLE, the replica offline. It is eligible to lead, not in sync (KIP-966).
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        disk.fail("append", errno.EIO, "/two/*.log")
        refusal(broker, 1)
        await settled()
        await broker._resign_offline()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        answer = metadata.build_response(broker.node, call(request))
        shown = [
            (one.error_code, one.leader_id, one.isr_nodes, one.offline_replicas) for one in answer.topics[0].partitions
        ]
        node = broker.node.broker_id
        nobody: list[int] = []
        gone = (ErrorCode.LEADER_NOT_AVAILABLE, -1, nobody, [node])
        assert shown == [(0, node, [node], []), gone, (0, node, [node], [])]
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
        paged = await describe_topic_partitions.handle(broker.node, call(asked))
        leaders = [(one.error_code, one.leader_id) for one in paged.topics[0].partitions]
        assert leaders == [(0, node), (0, -1), (0, node)], "as in Kafka, no leader is no error here"
        results = describe_log_dirs.handle(broker.node, call(DescribeLogDirsRequest(topics=None))).results
        assert [(one.log_dir, one.error_code) for one in results] == [("/one", 0), ("/two", OFFLINE), ("/three", 0)]
        broker.abort()

    asyncio.run(run())


def test_offline_partitions_are_reported_after_a_registration_that_is_under_way() -> None:
    # The metadata has the new epoch of the broker before the broker itself. That was an error with a traceback.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        disk.fail("append", errno.EIO, "/two/*.log")
        refusal(broker, 1)
        await settled()
        with patch.object(broker.participation, "broker_epoch", broker.participation.broker_epoch - 1):
            await broker._resign_offline()
        assert broker.node.image.partition(TOPIC, 1).leader == broker.node.broker_id  # type: ignore[union-attr]
        await broker._resign_offline()
        assert broker.node.image.partition(TOPIC, 1).leader == -1  # type: ignore[union-attr]
        broker.abort()

    asyncio.run(run())


def test_a_restart_without_the_directory_and_one_with_it() -> None:
    # Nothing is begun anew in another directory while it is away; when it is back, its records are.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        fail_everything(disk, "/two")
        assert refusal(broker, 1) is OFFLINE
        await settled()
        await broker.stop(1)
        for _ in range(2):
            broker = await started(disk)
            assert [refusal(broker, index) for index in range(3)] == [None, OFFLINE, None]
            assert broker.node.image.topic(TOPIC).partitions[1].leader == -1  # type: ignore[union-attr]
            await broker.stop(1)
        disk.heal()
        broker = await started(disk)
        partition = broker.node.replicas.get(TOPIC, 1)
        assert (partition.log.log_start_offset, partition.high_watermark.value) == (0, 1)
        assert [refusal(broker, index) for index in range(3)] == [None, None, None]
        await broker.stop(1)

    asyncio.run(run())


def test_of_two_logs_of_a_partition_the_longer_one_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    # A start without a directory creates an empty log elsewhere. When the directory is back, its log counts.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        await broker.stop(1)
        broker = await started(disk, ("/one", "/three"))
        await broker.stop(1)
        assert any(disk.exists(f"{directory}/{TOPIC}-1") for directory in ("/one", "/three"))
        broker = await started(disk)
        assert broker.node.replicas.get(TOPIC, 1).log.end_offset == 1
        assert directory_of(broker, TOPIC, 1) == "/two"
        await broker.stop(1)

    asyncio.run(run())
    (line,) = [record.getMessage() for record in caplog.records if "kept as" in record.getMessage()]
    assert f"/{TOPIC}-1 is no longer than /two/{TOPIC}-1: kept as" in line


def test_a_topic_that_was_deleted_while_its_directory_was_away_does_not_come_back() -> None:
    # Deleted and created again under the same name: the new one lives elsewhere, the old one is removed when found.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        fail_everything(disk, "/two")
        refusal(broker, 1)
        await settled()
        topic_id = broker.node.image.topic(TOPIC).id  # type: ignore[union-attr]
        await broker.node.metadata.change(lambda image: delete_topic(image, topic_id))
        await create(broker, TOPIC, 2)
        assert [refusal(broker, index) for index in range(2)] == [None, None]
        await broker.stop(1)
        disk.heal()
        broker = await started(disk)
        assert [broker.node.replicas.get(TOPIC, index).log.end_offset for index in range(2)] == [1, 1]
        assert [directory_of(broker, TOPIC, index) != "/two" for index in range(2)] == [True, True]
        left = [name for name in disk.list("/two") if name.startswith(TOPIC)]
        assert len(left) == 1 and left[0].endswith("-delete")
        await broker.stop(1)

    asyncio.run(run())


def test_the_directory_of_the_metadata_ends_the_broker() -> None:
    # One line says why; the directories that are sound are closed cleanly.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        disk.fail("fsync", errno.EIO, "/one/orders-0/*.log")
        broker.node.replicas.get(TOPIC, 0).flushing.request()
        await settled()
        assert broker.failure.done()
        assert broker.failure.result().startswith("/one holds the metadata and failed: ")
        await broker.stop(1)
        clean = [disk.exists(f"{path}/.kafka_cleanshutdown") for path in DIRECTORIES]
        assert clean == [False, True, True]
        fail_everything(disk, "/one")
        with pytest.raises(FailedDirectory, match="/one cannot be used"):
            await started(disk)

    asyncio.run(run())


def test_a_failing_metadata_log_ends_the_broker() -> None:
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        disk.fail("fsync", errno.EIO, "/one/__cluster_metadata-0/*")
        with pytest.raises(Exception, match="restart the broker"):
            await create(broker, "new")
        assert "the metadata log failed" in broker.failure.result()
        broker.abort()

    asyncio.run(run())


def test_what_a_failed_fsync_left_in_memory_is_written_again() -> None:
    # The process ends, the machine does not: the next one reads sound records that are in the page cache only. They are
    # written again before anything is built on them, so a power cut later takes none of what was flushed since.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        partition = broker.node.replicas.get(TOPIC, 1)
        for number in range(20):
            append(partition, b"%d" % number * 50)
        disk.fail("fsync", errno.EIO, "/two/*.log")
        partition.flushing.request()
        await settled()
        assert disk.exists("/two/.ottla_failed_fsync")
        broker.abort()
        disk.crash(lose_unsynced=False)
        broker = await started(disk)
        assert not disk.exists("/two/.ottla_failed_fsync")
        partition = broker.node.replicas.get(TOPIC, 1)
        assert (partition.log.end_offset, partition.log.recovery_point) == (21, 21)
        await broker.node.replication.checkpoints.write_recovery_points()
        broker.abort()
        disk.crash(lose_unsynced=True)
        broker = await started(disk)
        log = broker.node.replicas.get(TOPIC, 1).log
        assert log.end_offset == 21 and not any(segment.damage for segment in log.segments)
        broker.abort()

    asyncio.run(run())


@pytest.mark.parametrize("when", ["stop", "start"])
def test_an_fsync_that_fails_at_the_end_or_at_the_start_leaves_its_mark(when: str) -> None:
    # Else the next process would take what it reads for durable after an fsync that finds nothing to do.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        if when == "stop":
            disk.fail("fsync", errno.EIO, "/two/*.log")
            await broker.stop(1)
        else:
            broker.abort()
            disk.crash(lose_unsynced=False)
            disk.unlink("/two/.ottla_checkpointed")  # so that the next start flushes what it finds
            disk.fail("fsync", errno.EIO, "/two/*.log")
            (await started(disk)).abort()
        assert disk.exists("/two/.ottla_failed_fsync")
        disk.crash(lose_unsynced=False)
        broker = await started(disk)
        assert not disk.exists("/two/.ottla_failed_fsync")
        await broker.node.replication.checkpoints.write_recovery_points()
        broker.abort()
        disk.crash(lose_unsynced=True)
        broker = await started(disk)
        assert broker.node.replicas.get(TOPIC, 1).log.end_offset == 1
        broker.abort()

    asyncio.run(run())


def test_a_full_disk_is_no_failure() -> None:
    # Refused, read all the same, taken when there is room; a new partition goes where there is some.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        for operation in ("append", "create", "mkdir"):
            disk.fail(operation, errno.ENOSPC, "/two/*", times=None)
        assert refusal(broker, 1) is OFFLINE
        await settled()
        read = broker.node.replicas.get(TOPIC, 1).read(0, 1000, read_committed=False, at_least_one=True)
        assert read.records is not None
        await create(broker, "new", 6)
        assert {directory_of(broker, "new", index) for index in range(6)} == {"/one", "/three"}
        assert not [name for name in disk.list("/two") if name.startswith("new")]
        disk.heal()
        assert refusal(broker, 1) is None
        await broker.stop(1)

    asyncio.run(run())


def test_retention_makes_room_on_a_full_disk() -> None:
    # Not even the checkpoint has room: old segments go all the same, one certainly after the other, and no restart
    # brings one of them back.
    async def run() -> None:
        disk = new_disk()
        broker = await started(disk)
        await create(broker, TOPIC, 1, internal_segment_bytes="250", retention_bytes="250")
        partition = broker.node.replicas.get(TOPIC, 0)
        for number in range(9):
            append(partition, b"%d" % number * 50)
        partition.log.flush()
        for operation in ("append", "create"):
            disk.fail(operation, errno.ENOSPC, times=None)
        await broker.node.replication.upkeep.expire_segments()
        start = partition.log.log_start_offset
        assert 0 < start < 9 and partition.log.segments[0].base_offset == start
        disk.heal()
        broker.abort()
        disk.crash(lose_unsynced=True)
        broker = await started(disk)
        log = broker.node.replicas.get(TOPIC, 0).log
        assert (log.log_start_offset, log.end_offset) == (start, 9)
        broker.abort()

    asyncio.run(run())


def test_a_flush_without_room_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    # The data is synced, the file of leader epochs has no room: who waits is refused, the partition stays, and the
    # flush is done when there is room, without anybody asking again.
    monkeypatch.setattr("ottla.replication.flushing.RETRY_S", 0.001)

    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        partition = broker.node.replicas.get(TOPIC, 1)
        disk.fail("create", errno.ENOSPC, "/two/orders-1/leader-epoch-checkpoint*", times=1)
        waiting = partition.durable.reach(1)
        partition.flushing.request()
        await settled()
        with pytest.raises(KafkaError, match="No space left"):
            waiting.result()
        assert refusal(broker, 1) is None
        await asyncio.wait_for(partition.durable.reach(1), PATIENCE_S)
        broker.abort()

    asyncio.run(run())


def test_a_checkpoint_that_cannot_be_written_takes_its_directory_only() -> None:
    # The others' are written.
    async def run() -> None:
        disk = new_disk()
        broker = await filled(disk)
        disk.fail("append", errno.EIO, "/two/replication-offset-checkpoint*")
        await broker.node.replication.checkpoints.write_high_watermarks()
        assert [refusal(broker, index) for index in range(3)] == [None, OFFLINE, None]
        assert b"orders 2 1" in disk.read("/three/replication-offset-checkpoint")
        broker.abort()

    asyncio.run(run())
