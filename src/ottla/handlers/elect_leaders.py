"""ElectLeaders: give leadership back to the preferred replicas, or let a replica lead that is not in sync.

Who asks for all partitions gets every topic, with those of its partitions where something happened, as in Kafka.
Versions: 1 the kind of election (KIP-460): version 0 has only the preferred replica; 2 flexible.
"""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.elections import elect_leaders
from ottla.handlers.deadlines import Deadline
from ottla.security import rights
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

REQUIRES = rights.whole(rights.ALTER_CLUSTER)


async def handle(node: Node, call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    request = call.body
    wanted = None
    if request.topic_partitions is not None:
        wanted = [
            TopicPartition(topic.topic, number) for topic in request.topic_partitions for number in topic.partitions
        ]
    decide = partial(elect_leaders, election_type=request.election_type, partitions=wanted)
    results = await node.metadata.change(decide, Deadline(node, request.timeout_ms).left_s())
    named = node.image.topics_by_name if wanted is None else ()
    topics = {name: ReplicaElectionResult(topic=name) for name in sorted(named)}
    for (name, number), error in sorted(results.items()):
        topic = topics.setdefault(name, ReplicaElectionResult(topic=name))
        result = PartitionResult(partition_id=number)
        if error is not None:
            result.error_code, result.error_message = error.code, error.message or None
        topic.partition_result.append(result)
    return ElectLeadersResponse(replica_election_results=list(topics.values()))
