"""AlterPartitionReassignments: move partitions to other brokers, or cancel a move that is under way (KIP-455).

Versions: 1 a guard against a change of the replication factor by mistake (KIP-860).
"""

from collections import Counter
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.reassignments import alter_reassignments
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.deadlines import Deadline
from ottla.security import rights
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

REQUIRES = rights.whole(rights.ALTER_CLUSTER)


async def handle(node: Node, call: Call[AlterPartitionReassignmentsRequest]) -> AlterPartitionReassignmentsResponse:
    request = call.body
    named = Counter(
        TopicPartition(topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    targets = {
        TopicPartition(topic.name, asked.partition_index): asked.replicas
        for topic in request.topics
        for asked in topic.partitions
    }
    if any(count > 1 for count in named.values()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names a partition more than once")
    decide = partial(
        alter_reassignments,
        targets=targets,
        allow_replication_factor_change=call.version < 1 or request.allow_replication_factor_change,
    )
    results = await node.metadata.change(decide, Deadline(node, request.timeout_ms).left_s())
    topics: dict[str, ReassignableTopicResponse] = {}
    for (name, number), error in results.items():
        result = ReassignablePartitionResponse(partition_index=number)
        if error is not None:
            result.error_code, result.error_message = error.code, error.message or None
        topics.setdefault(name, ReassignableTopicResponse(name=name)).partitions.append(result)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=list(topics.values())
    )
