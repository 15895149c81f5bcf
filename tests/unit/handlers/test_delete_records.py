"""DeleteRecords and the disk: power cuts at every operation and right after the answer, and a disk that refuses."""

import asyncio
import errno
from random import Random
from typing import Any

from ottla.broker.broker import Broker
from ottla.cluster.changes import ChangePartition
from ottla.errors import ErrorCode
from ottla.handlers import delete_records
from ottla.replication.partition import Partition
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.handlers import three_brokers
from tests.unit.handlers.one_broker import RECORDS, broker_on, call, filled

KEPT_FROM = 5


async def delete(broker: Broker) -> tuple[int, int]:
    """Delete records. Returns the error code and the new log start offset."""
    partitions = [DeleteRecordsPartition(partition_index=0, offset=KEPT_FROM)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=partitions)])
    answer = await delete_records.handle(broker.node, call(request))
    ((result,),) = (topic.partitions for topic in answer.topics)
    return result.error_code, result.low_watermark


async def reopened(disk: SimulatedDisk) -> Partition:
    disk.crash(lose_unsynced=True)
    broker = broker_on(disk)
    await broker.start()
    partition = broker.node.replicas.get("orders", 0)
    broker.abort()
    return partition


def test_an_answer_survives_a_power_cut() -> None:
    """The answer holds for every way in which the disk may forget what was not synced."""

    async def run() -> None:
        for seed in range(20):
            disk = SimulatedDisk(Random(seed))
            broker = await filled(disk)
            assert await delete(broker) == (0, KEPT_FROM)
            broker.abort()
            partition = await reopened(disk)
            assert (partition.log.log_start_offset, partition.log.end_offset) == (KEPT_FROM, RECORDS)

    asyncio.run(run())


def test_a_power_cut_at_any_operation_leaves_a_valid_log() -> None:
    """After a power cut at any operation the log opens, begins at its old start or at most at the requested one, and
    keeps its end."""

    async def run() -> None:
        operations = range(1, 2)
        at = 0
        starts = set()
        while at < len(operations):
            disk = SimulatedDisk(Random(at))
            broker = await filled(disk)
            first = disk.operations + 1
            disk.crash_at(first + at)
            try:
                await delete(broker)
            except Crashed:
                operations = range(at + 2)
            broker.abort()
            partition = await reopened(disk)
            starts.add(partition.log.log_start_offset)
            assert 0 <= partition.log.log_start_offset <= KEPT_FROM
            assert partition.log.end_offset == RECORDS
            at += 1
        assert at > 5, "a deletion touches the disk more often than that"
        assert {0, KEPT_FROM} <= starts

    asyncio.run(run())


def test_a_full_disk_refuses_the_new_log_start() -> None:
    """The answer is KAFKA_STORAGE_ERROR without an offset, so nothing was promised. When there is space again, it
    succeeds."""

    async def run() -> None:
        disk = SimulatedDisk(Random(1))
        broker = await filled(disk)
        disk.fail("append", errno.ENOSPC, "*log-start-offset-checkpoint*", times=1)
        assert await delete(broker) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert await delete(broker) == (0, KEPT_FROM)
        broker.abort()
        assert (await reopened(disk)).log.log_start_offset == KEPT_FROM

    asyncio.run(run())


def test_the_newest_log_start_is_written_last() -> None:
    """A checkpoint that is written slowly does not overwrite one that was requested later."""

    async def run() -> None:
        disk = SimulatedDisk(Random(1))
        broker = await filled(disk)
        replication = broker.node.replication
        waiting: list[tuple[asyncio.Future[Any], Any, Any]] = []

        def slow(function: Any, *arguments: Any) -> asyncio.Future[Any]:
            future = asyncio.get_running_loop().create_future()
            waiting.append((future, function, arguments))
            return future

        replication.checkpoints._offload = slow
        partition = replication.replicas.get("orders", 0)
        partition.delete_records(2)
        first = asyncio.ensure_future(replication.log_starts.write())
        await asyncio.sleep(0)
        partition.delete_records(4)
        second = asyncio.ensure_future(replication.log_starts.write())
        await asyncio.sleep(0)
        while waiting:
            future, function, arguments = waiting.pop()  # if there are two, the last one runs first
            future.set_result(function(*arguments))
            for _ in range(5):
                await asyncio.sleep(0)
        await asyncio.gather(first, second)
        broker.abort()
        assert (await reopened(disk)).log.log_start_offset == 4

    asyncio.run(run())


def delete_shared(broker: Broker, timeout_ms: int = 60_000) -> asyncio.Task[tuple[int, int]]:
    """Delete below offset 2 of the topic on three brokers."""

    async def send() -> tuple[int, int]:
        partitions = [DeleteRecordsPartition(partition_index=0, offset=2)]
        topic = DeleteRecordsTopic(name=three_brokers.TOPIC, partitions=partitions)
        answer = await delete_records.handle(
            broker.node, call(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms))
        )
        ((result,),) = (topic.partitions for topic in answer.topics)
        return result.error_code, result.low_watermark

    return asyncio.get_running_loop().create_task(send())


async def start_shared() -> Broker:
    broker = await three_brokers.start()
    three_brokers.append(three_brokers.shared(broker), 3)
    for other in three_brokers.OTHERS:
        three_brokers.follow(broker, other, 3)
    return broker


def test_every_live_replica_has_deleted_before_the_answer() -> None:
    async def run() -> None:
        broker = await start_shared()
        second, third = three_brokers.OTHERS
        deleting = delete_shared(broker)
        await asyncio.sleep(1)
        three_brokers.follow(broker, second, 3, log_start_offset=2)
        await asyncio.sleep(1)
        assert not deleting.done()
        three_brokers.follow(broker, third, 3, log_start_offset=2)
        assert await deleting == (0, 2)
        broker.abort()

    simulate(run())


def test_a_fenced_replica_is_not_waited_for() -> None:
    async def run() -> None:
        broker = await start_shared()
        second, third = three_brokers.OTHERS
        deleting = delete_shared(broker)
        await asyncio.sleep(1)
        three_brokers.follow(broker, second, 3, log_start_offset=2)
        await three_brokers.fence(broker, third)
        assert await deleting == (0, 2)
        broker.abort()

    simulate(run())


def test_a_replica_outside_the_isr_is_not_waited_for_once_it_is_fenced() -> None:
    async def run() -> None:
        broker = await start_shared()
        second, third = three_brokers.OTHERS
        state = broker.node.image.partition(three_brokers.TOPIC, 0)
        assert state is not None
        smaller = tuple(member for member in state.isr if member != third)
        await three_brokers.change(
            broker, ChangePartition(three_brokers.TOPIC_ID, 0, state.partition_epoch, isr=smaller)
        )
        deleting = delete_shared(broker)
        await asyncio.sleep(1)
        three_brokers.follow(broker, second, 3, log_start_offset=2)
        await asyncio.sleep(1)
        assert not deleting.done()
        await three_brokers.fence(broker, third)
        assert await deleting == (0, 2)
        broker.abort()

    simulate(run())


def test_a_replica_that_does_not_come_ends_in_a_time_out() -> None:
    async def run() -> None:
        broker = await start_shared()
        began = asyncio.get_running_loop().time()
        assert await delete_shared(broker, 5000) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert 5 <= asyncio.get_running_loop().time() - began < 6
        assert not three_brokers.shared(broker).high_watermark.watchers
        broker.abort()

    simulate(run())


def test_a_leader_that_loses_the_partition_says_so() -> None:
    async def run() -> None:
        broker = await start_shared()
        deleting = delete_shared(broker)
        await asyncio.sleep(1)
        await three_brokers.move_leader(broker, three_brokers.OTHERS[0])
        assert await deleting == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        broker.abort()

    simulate(run())
