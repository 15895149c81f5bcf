"""AlterPartitionReassignments: move partitions to other brokers, or cancel a move that is under way (KIP-455).

As in Kafka, every mention of a topic and of a partition is answered, in the order of the request.
Versions: 1 a guard against a change of the replication factor by mistake (KIP-860).
"""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.reassignments import alter_reassignments
from ottla.errors import KafkaError
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
    targets = [
        (TopicPartition(topic.name, asked.partition_index), asked.replicas)
        for topic in request.topics
        for asked in topic.partitions
    ]
    decide = partial(
        alter_reassignments,
        targets=targets,
        allow_replication_factor_change=call.version < 1 or request.allow_replication_factor_change,
    )
    errors = iter(await node.metadata.change(decide, Deadline(node, request.timeout_ms).left_s()))
    topics = [
        ReassignableTopicResponse(
            name=topic.name, partitions=[report(asked.partition_index, next(errors)) for asked in topic.partitions]
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=topics
    )


def report(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index)
    return ReassignablePartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message or None
    )
