"""A waiting fetch begins its wait one iteration of the loop after it has read: events in between count."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from ottla.broker.call import Call, Client
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import fetch
from ottla.records.batch import check, encode
from ottla.replication.partition import Partition
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionResult
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.handlers.one_broker import RECORDS, filled

LONG_MS = 60_000


def append(partition: Partition) -> None:
    batch = bytearray(encode([(None, b"value", (), 1)]))
    partition.append(memoryview(batch), check(batch), 1, 1)


def fetch_at_end(between: Callable[[Partition], None]) -> tuple[PartitionResult, float]:
    """The answer to a fetch at the end of a log, and how long it took. `between` runs before the wait begins."""

    async def scenario() -> tuple[PartitionResult, float]:
        broker = await filled(SimulatedDisk(Random(1)))
        partition = broker.node.replicas.get("orders", 0)
        wanted = FetchPartition(0, partition.leader_epoch, fetch_offset=RECORDS, max_bytes=1 << 20)
        asked = FetchTopic("orders", partitions=[wanted])
        request = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[asked])
        client = Client(1, "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2))
        waiting = fetch.handle(broker.node, Call(1, 12, 1, None, request, client))
        assert asyncio.iscoroutine(waiting)
        between(partition)
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await waiting
        took = loop.time() - began
        broker.abort()
        return response.topics[0].partitions[0], took

    return simulate(scenario())


def test_a_record_before_the_wait_begins_is_returned() -> None:
    result, took = fetch_at_end(append)
    assert result.records is not None and took < 1


def test_a_partition_deleted_before_the_wait_begins_ends_it() -> None:
    result, took = fetch_at_end(lambda partition: partition.retire(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and took < 1


def test_a_leader_epoch_that_begins_before_the_wait_ends_it() -> None:
    def begin_epoch(partition: Partition) -> None:
        assert partition.state is not None
        partition.become(replace(partition.state, leader_epoch=partition.leader_epoch + 1))

    result, took = fetch_at_end(begin_epoch)
    assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH and took < 1


def test_without_a_new_record_the_fetch_waits() -> None:
    result, took = fetch_at_end(lambda partition: None)
    assert result.records is None and took == pytest.approx(LONG_MS / 1000, abs=1)
