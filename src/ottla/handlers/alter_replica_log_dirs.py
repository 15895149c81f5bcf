"""AlterReplicaLogDirs: move replicas of this broker between its data directories (KIP-113).

The answer says that a move has begun; DescribeLogDirs shows how far it is.
Versions: 2 flexible.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

VERSIONS = range(1, 3)


def handle(node: Node, call: Call[AlterReplicaLogDirsRequest]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in call.body.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                result = AlterReplicaLogDirPartitionResult(partition_index=number)
                result.error_code = begin_move(node, directory.path, TopicPartition(topic.name, number))
                found = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
                found.partitions.append(result)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def begin_move(node: Node, path: str, where: TopicPartition) -> ErrorCode:
    """Begin one move. Returns NONE, or the reason why it cannot be done."""
    moves = node.replication.moves
    try:
        target = moves.find_directory(path)
        moves.move(node.replicas.get(*where), target)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
