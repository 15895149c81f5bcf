"""DeleteRecords: delete the records below an offset; -1 means below the high watermark.

Versions: 2 flexible. The new log start is on disk before the answer is sent, so no restart brings records back. The
answer comes when every replica on a live broker has moved its log start, or when the client's time-out is over. So none
of them shows the records again if it becomes the leader.
"""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.topics import is_internal
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may
from ottla.replication.partition import Partition
from ottla.security import rights
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

REQUIRES = rights.parts(rights.DELETE_TOPIC)

HIGH_WATERMARK = -1
UNKNOWN = -1

POLL_S = 0.5
"""How often the replicas are looked at without a sign. A replica outside the ISR gives none when it is fenced."""


class Deletion(NamedTuple):
    """Records that are deleted on this broker. `result` is what the client gets."""

    partition: Partition
    start: int
    result: DeleteRecordsPartitionResult


async def handle(node: Node, call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    deletions: list[Deletion] = []
    topics = []
    for topic in call.body.topics:
        offsets = {partition.partition_index: partition.offset for partition in topic.partitions}
        if may(node, call, rights.DELETE_TOPIC, topic.name):
            results = [delete(node, topic.name, index, offset, deletions) for index, offset in offsets.items()]
        else:
            results = [refuse(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for index in offsets]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if deletions:
        try:
            await node.replication.log_starts.write()
        except OSError:
            for _, _, result in deletions:
                result.error_code, result.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, UNKNOWN
        else:
            await wait_for_replicas(node, deletions, call.body.timeout_ms / 1000)
    return DeleteRecordsResponse(topics=topics)


def refuse(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN, error_code=code)


def delete(node: Node, topic: str, index: int, offset: int, deletions: list[Deletion]) -> DeleteRecordsPartitionResult:
    """Delete on this broker. The result is final if it has an error; otherwise it is added to `deletions`."""
    try:
        partition = node.replicas.get(topic, index)
        if is_internal(topic):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic: clients cannot delete its records"
            )
        partition.require_leader()
        start = partition.delete_records(None if offset == HIGH_WATERMARK else offset)
    except KafkaError as error:
        return refuse(index, error.code)
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)
    deletions.append(Deletion(partition, start, result))
    return result


async def wait_for_replicas(node: Node, deletions: list[Deletion], timeout_s: float) -> None:
    """Wait until no live replica has the records any more. What is left at the time-out gets REQUEST_TIMED_OUT."""
    waiting = [deletion for deletion in deletions if not settle(node, deletion)]
    if not waiting:
        return
    wake = asyncio.Event()
    for partition, _, _ in waiting:
        partition.high_watermark.watch(wake.set)
    try:
        async with asyncio.timeout(max(timeout_s, 0)):
            while waiting := [deletion for deletion in waiting if not settle(node, deletion)]:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await wake.wait()
                wake.clear()
    except TimeoutError:
        for partition, _, result in waiting:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            result.low_watermark = find_low_watermark(node, partition)
    finally:
        for partition, _, _ in deletions:
            partition.high_watermark.unwatch(wake.set)


def settle(node: Node, deletion: Deletion) -> bool:
    """Returns whether the result is final: every live replica has deleted, or this broker no longer leads."""
    partition, start, result = deletion
    if not partition.is_leader:
        result.error_code, result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, UNKNOWN
        return True
    result.low_watermark = find_low_watermark(node, partition)
    return result.low_watermark >= start


def find_low_watermark(node: Node, partition: Partition) -> int:
    return partition.low_watermark([broker.id for broker in node.image.alive_brokers()])
