"""When a fetch answers at once, and that it notices what happens between its read and its wait.

The wait begins one iteration of the loop after the read.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from ottla.broker.call import Call, Client
from ottla.cluster.changes import CreatePartition, CreateTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import fetch
from ottla.records.batch import check, encode
from ottla.replication.partition import Partition
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionResult
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.handlers import three_brokers
from tests.unit.handlers.one_broker import RECORDS, filled
from tests.unit.handlers.three_brokers import OTHERS, TOPIC, TOPIC_ID, ask

LONG_MS = 60_000
ELSEWHERE, ELSEWHERE_ID = "elsewhere", b"e" * 16


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


def fetch_beside_an_idle_partition(version: int, topic: tuple[str, bytes], *, is_offline: bool) -> tuple[int, bool]:
    """Fetch another topic together with a partition without records: the other's error, and whether it came at once."""

    async def scenario() -> tuple[int, bool]:
        broker = await three_brokers.start()
        created = CreateTopic(ELSEWHERE_ID, ELSEWHERE), CreatePartition(ELSEWHERE_ID, 0, OTHERS, OTHERS, OTHERS[0])
        await three_brokers.change(broker, *created)
        if is_offline:
            broker.node.replicas.offline.add(ELSEWHERE, ELSEWHERE_ID, 0)
        by_id = version >= 13
        topics = [
            FetchTopic("" if by_id else name, topic_id if by_id else bytes(16), [FetchPartition(0, max_bytes=1000)])
            for name, topic_id in ((TOPIC, TOPIC_ID), topic)
        ]
        request = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics)
        answer = fetch.handle(broker.node, ask(1, version, request))
        is_at_once = isinstance(answer, FetchResponse)
        response = answer if isinstance(answer, FetchResponse) else await answer
        broker.abort()
        assert response.topics[0].partitions[0].error_code == 0
        return response.topics[1].partitions[0].error_code, is_at_once

    return simulate(scenario())


@pytest.mark.parametrize("version", [12, 18])
def test_a_partition_of_other_brokers_ends_the_wait(version: int) -> None:
    # A consumer with old metadata finds the new leader at once, although its other partitions are idle.
    told = fetch_beside_an_idle_partition(version, (ELSEWHERE, ELSEWHERE_ID), is_offline=False)
    assert told == (ErrorCode.NOT_LEADER_OR_FOLLOWER, True)


@pytest.mark.parametrize("version", [12, 18])
def test_a_partition_on_a_failed_directory_ends_the_wait(version: int) -> None:
    told = fetch_beside_an_idle_partition(version, (ELSEWHERE, ELSEWHERE_ID), is_offline=True)
    assert told == (ErrorCode.KAFKA_STORAGE_ERROR, True)


@pytest.mark.parametrize(
    ("version", "error"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (18, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_an_unknown_topic_does_not_end_the_wait(version: int, error: ErrorCode) -> None:
    # A consumer of a deleted topic would otherwise send fetches without a pause.
    told = fetch_beside_an_idle_partition(version, ("nowhere", b"n" * 16), is_offline=False)
    assert told == (error, False)
