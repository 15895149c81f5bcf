"""ElectLeaders: give leadership back to the preferred replicas, or let a replica lead that is not in sync.

Who asks for all partitions gets every topic, with those of its partitions where something happened, as in Kafka. Who
names partitions gets an answer to every mention of a topic and of a partition, in the order of the request.

Versions: 1 the kind of election (KIP-460): version 0 has only the preferred replica; 2 flexible.
"""

from collections.abc import Mapping
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.elections import elect_leaders
from ottla.errors import KafkaError
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
    asked = request.topic_partitions
    wanted = None
    if asked is not None:
        wanted = [TopicPartition(topic.topic, number) for topic in asked for number in topic.partitions]
    decide = partial(elect_leaders, election_type=request.election_type, partitions=wanted)
    errors = await node.metadata.change(decide, Deadline(node, request.timeout_ms).left_s())
    if asked is not None:
        return ElectLeadersResponse(
            replica_election_results=[report(topic.topic, topic.partitions, errors) for topic in asked]
        )
    elected: dict[str, list[int]] = {name: [] for name in sorted(node.image.topics_by_name)}
    for name, number in sorted(errors):
        elected.setdefault(name, []).append(number)
    return ElectLeadersResponse(
        replica_election_results=[report(name, numbers, errors) for name, numbers in elected.items()]
    )


def report(name: str, numbers: list[int], errors: Mapping[TopicPartition, KafkaError | None]) -> ReplicaElectionResult:
    results = []
    for number in numbers:
        result, error = PartitionResult(partition_id=number), errors[TopicPartition(name, number)]
        if error is not None:
            result.error_code, result.error_message = error.code, error.message or None
        results.append(result)
    return ReplicaElectionResult(topic=name, partition_result=results)
