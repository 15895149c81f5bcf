"""OffsetForLeaderEpoch: the end offset of an epoch, by which a client finds where its log diverges (KIP-101, KIP-320).

Versions: 2 the client's current leader epoch; 3 replica id; 4 flexible.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

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


def handle(
    node: Node, call: Call[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    if node.catch_up is not None and any(
        is_newer(node, topic.topic, asked) and may(node, call, rights.DESCRIBE_TOPIC, topic.topic, silent=True)
        for topic in call.body.topics
        for asked in topic.partitions
    ):
        return answer_after_catching_up(node, node.catch_up, call)
    return answer(node, call)


def is_newer(node: Node, topic: str, asked: OffsetForLeaderPartition) -> bool:
    """Whether the client has records of an epoch that this broker has not heard of."""
    state = node.image.partition(topic, asked.partition)
    return state is not None and asked.leader_epoch > state.leader_epoch


async def answer_after_catching_up(
    node: Node, catch_up: Callable[[], Awaitable[None]], call: Call[OffsetForLeaderEpochRequest]
) -> OffsetForLeaderEpochResponse:
    """Look who leads now. A leader that was paused and deposed would tell the client that its records were truncated,
    and the client would go on where auto.offset.reset says."""
    await catch_up()
    return answer(node, call)


def answer(node: Node, call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
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
    if is_newer(node, topic, asked) and not node.is_connected():
        return EpochEndOffset(partition=asked.partition, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)
    epoch, end_offset = partition.epoch_end(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
