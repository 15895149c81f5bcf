"""OffsetForLeaderEpoch: the end offset of an epoch, by which a client finds where its log diverges (KIP-101, KIP-320).

Versions: 2 the client's current leader epoch; 3 replica id; 4 flexible.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import KafkaError
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

VERSIONS = range(2, 5)


def handle(node: Node, call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[find(node, topic.topic, asked) for asked in topic.partitions]
            )
            for topic in call.body.topics
        ]
    )


def find(node: Node, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = node.replicas.get(topic, asked.partition)
        partition.require_leader(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    epoch, end_offset = partition.epoch_end(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
