"""DeleteRecords and power cuts: at every operation on the disk, and right after the answer."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.batch import check, encode
from ottla.broker import Broker
from ottla.call import Call, Client
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig, Listener
from ottla.handlers import delete_records
from ottla.replication.partition import Partition
from ottla.server import Server
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.simulation.disk import Crashed, SimulatedDisk

CONFIG = BrokerConfig.of({})
RECORDS = 6
KEPT_FROM = 5


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def offload(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


async def listen(server: Server, listener: Listener) -> int:
    return listener.port


def broker_on(disk: SimulatedDisk) -> Broker:
    return Broker(
        CONFIG, "/data", disk=disk, clock=FixedClock(), random=Random(1), offload=offload, listen=listen
    )


async def filled(disk: SimulatedDisk) -> Broker:
    """A broker with a topic of two segments' records, all of them on the platter."""
    broker = broker_on(disk)
    await broker.start()
    topic = NewTopic("orders", 1, configs={"segment.bytes": str(1 << 20)})
    await broker.node.metadata.change(lambda image: create_topic(image, topic, broker.node.config, Random(2)))
    partition = broker.node.replicas.get("orders", 0)
    for _ in range(RECORDS):
        batch = bytearray(encode([(None, bytes(300_000), (), 1)]))
        partition.append(memoryview(batch), check(batch), 1, 1)
    partition.log.flush()
    await broker.node.replicas.write_recovery_points()
    return broker


async def delete(broker: Broker) -> int:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=KEPT_FROM)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=partitions)])
    call = Call(21, 2, 1, None, request, Client(1, "PLAINTEXT", ("", 0), ("", 0)))
    answer = await delete_records.handle(broker.node, call)
    return int(answer.topics[0].partitions[0].low_watermark)


async def reopened(disk: SimulatedDisk) -> Partition:
    disk.crash(lose_unsynced=True)
    broker = broker_on(disk)
    await broker.start()
    partition = broker.node.replicas.get("orders", 0)
    broker.abort()
    return partition


def test_an_answer_survives_a_power_cut() -> None:
    """What was answered holds, for every way in which the disk may forget what was not synced."""

    async def run() -> None:
        for seed in range(20):
            disk = SimulatedDisk(Random(seed))
            broker = await filled(disk)
            assert await delete(broker) == KEPT_FROM
            broker.abort()
            partition = await reopened(disk)
            assert (partition.log.log_start_offset, partition.log.end_offset) == (KEPT_FROM, RECORDS)

    asyncio.run(run())


def test_a_power_cut_in_the_middle() -> None:
    """At each operation: the log opens, begins where it did or at most where it was asked to, and has its end."""

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
