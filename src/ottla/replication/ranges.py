"""Asks a leader with ListOffsets where its logs begin and end, for followers that are out of its range."""

import asyncio
from collections.abc import Sequence

from ottla.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.replication.peers import Peers
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2

Range = tuple[int, int]
"""Log start and end offset."""


async def ask_ranges(
    peers: Peers, leader: int, broker_id: int, asked: Sequence[tuple[Partition, int]], timeout_s: float
) -> dict[Partition, Range | int]:
    """The range of each partition on the leader, or the error code that it answers.

    `asked` has the partitions with their leader epochs. PeerUnavailable if the leader does not answer.
    """
    starts, ends = await asyncio.gather(
        *(
            peers.request(leader, _make_request(broker_id, asked, timestamp), timeout_s=timeout_s)
            for timestamp in (EARLIEST, LATEST)
        )
    )
    start_of, end_of = _read_offsets(starts), _read_offsets(ends)
    found: dict[Partition, Range | int] = {}
    for partition, _ in asked:
        key = partition.topic_partition
        start, start_error = start_of.get(key, (-1, ErrorCode.UNKNOWN_SERVER_ERROR))
        end, end_error = end_of.get(key, (-1, ErrorCode.UNKNOWN_SERVER_ERROR))
        if start_error or end_error:
            found[partition] = int(start_error or end_error)
        elif 0 <= start <= end:
            found[partition] = (start, end)
        else:
            found[partition] = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return found


def _make_request(broker_id: int, asked: Sequence[tuple[Partition, int]], timestamp: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, leader_epoch in asked:
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.index, current_leader_epoch=leader_epoch, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))


def _read_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, tuple[int, int]]:
    return {
        TopicPartition(topic.name, partition.partition_index): (partition.offset, partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
