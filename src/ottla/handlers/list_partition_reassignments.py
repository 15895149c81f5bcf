"""ListPartitionReassignments: the partitions that are moving to other brokers (KIP-455)."""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.reassignments import list_reassignments
from ottla.security import rights
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

REQUIRES = rights.whole(rights.DESCRIBE_CLUSTER)


async def handle(node: Node, call: Call[ListPartitionReassignmentsRequest]) -> ListPartitionReassignmentsResponse:
    if node.catch_up is not None:
        await node.catch_up()  # or a reassignment that another broker has just started would seem to be over
    wanted = None
    if call.body.topics is not None:
        wanted = [
            TopicPartition(topic.name, number) for topic in call.body.topics for number in topic.partition_indexes
        ]
    topics: dict[str, OngoingTopicReassignment] = {}
    for (name, number), state in sorted(list_reassignments(node.image, wanted).items()):
        topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
