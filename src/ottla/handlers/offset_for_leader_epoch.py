"""OffsetForLeaderEpoch: the end offset of an epoch, by which a client finds where its log diverges (KIP-101, KIP-320).

Versions: 2 the client's current leader epoch; 3 replica id; 4 flexible.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may
from ottla.security import rights
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)

REQUIRES = rights.parts(rights.CLUSTER_ACTION, rights.DESCRIBE_TOPIC)


def handle(node: Node, call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    is_broker = may(node, call, rights.CLUSTER_ACTION, silent=True)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic=topic.topic, partitions=find_all(node, call, topic, is_broker))
            for topic in call.body.topics
        ]
    )


def find_all(
    node: Node, call: Call[OffsetForLeaderEpochRequest], topic: OffsetForLeaderTopic, is_broker: bool
) -> list[EpochEndOffset]:
    if is_broker or may(node, call, rights.DESCRIBE_TOPIC, topic.topic):
        return [find(node, topic.topic, asked) for asked in topic.partitions]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [EpochEndOffset(partition=asked.partition, error_code=code) for asked in topic.partitions]


def find(node: Node, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = node.replicas.get(topic, asked.partition)
        partition.require_leader(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    epoch, end_offset = partition.epoch_end(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
