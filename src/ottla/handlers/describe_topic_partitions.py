"""DescribeTopicPartitions: the partitions of topics, by name, page by page (KIP-966).

Versions: 0. A page ends after `response_partition_limit` partitions, and after max.request.partition.size.limit at the
latest; its cursor names the first partition of the next page. A request without topics asks for all of them. As in
Kafka, a partition that has no leader, or none that the client can reach, has the leader -1 and no error.
"""

from collections.abc import Iterator

from ottla.broker.addresses import find_unreachable, judge_leader
from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.changes import NO_LEADER
from ottla.cluster.image import Image, TopicImage
from ottla.cluster.topics import check_name, is_internal
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import list_operations, may
from ottla.security import rights
from ottla.security.operations import ResourceType
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

REQUIRES = rights.parts(rights.DESCRIBE_TOPIC)


async def handle(node: Node, call: Call[DescribeTopicPartitionsRequest]) -> DescribeTopicPartitionsResponse:
    request = call.body
    forbidden = find_forbidden(node, call)
    if node.catch_up is not None and any(
        node.image.topic(topic.name) is None and topic.name not in forbidden for topic in request.topics
    ):
        await node.catch_up()
    image = node.image
    unreachable = find_unreachable(image, call.client.listener)
    left = max(1, min(request.response_partition_limit, node.config.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for name, start in select_topics(image, request):
        if name in forbidden or not (request.topics or may(node, call, rights.DESCRIBE_TOPIC, name, silent=True)):
            continue
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=start)
            break
        topic = image.topic(name)
        if topic is None:
            response.topics.append(describe_missing(node, call, name))
            continue
        end = min(start + left, len(topic.partitions))
        response.topics.append(describe(node, call, topic, range(start, end), unreachable))
        left -= max(0, end - start)
        if end < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=end)
            break
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    response.topics += [DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in forbidden]
    return response


def find_forbidden(node: Node, call: Call[DescribeTopicPartitionsRequest]) -> list[str]:
    """The topics of the request that the client may not see. Whether they exist makes no difference."""
    cursor = call.body.cursor
    start = cursor.topic_name if cursor is not None else ""
    names = sorted({topic.name for topic in call.body.topics})
    return [name for name in names if name >= start and not may(node, call, rights.DESCRIBE_TOPIC, name)]


def select_topics(image: Image, request: DescribeTopicPartitionsRequest) -> Iterator[tuple[str, int]]:
    """The topics to describe, in order, each with its first partition."""
    names = sorted({topic.name for topic in request.topics} or image.topics_by_name)
    cursor = request.cursor
    if cursor is None:
        return ((name, 0) for name in names)
    if cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition of the cursor is negative")
    if request.topics and cursor.topic_name not in names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic of the cursor is not one of the requested topics")
    return (
        (name, cursor.partition_index if name == cursor.topic_name else 0)
        for name in names
        if name >= cursor.topic_name
    )


def describe_missing(
    node: Node, call: Call[DescribeTopicPartitionsRequest], name: str
) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=list_operations(node, call, ResourceType.TOPIC, name),
    )


def describe(
    node: Node,
    call: Call[DescribeTopicPartitionsRequest],
    topic: TopicImage,
    indexes: range,
    unreachable: frozenset[int],
) -> DescribeTopicPartitionsResponseTopic:
    image = node.image
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[describe_partition(image, topic, index, unreachable) for index in indexes],
        topic_authorized_operations=list_operations(node, call, ResourceType.TOPIC, topic.name),
    )


def describe_partition(
    image: Image, topic: TopicImage, index: int, unreachable: frozenset[int]
) -> DescribeTopicPartitionsResponsePartition:
    state = topic.partitions[index]
    leader, _ = judge_leader(state, unreachable)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=[] if state.last_known_leader == NO_LEADER else [state.last_known_leader],
        offline_replicas=image.offline_replicas(state, unreachable),
    )
