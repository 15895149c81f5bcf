"""AlterReplicaLogDirs: move replicas of this broker between its data directories (KIP-113).

The answer says that a move has begun; DescribeLogDirs shows how far it is. For a replica that is not on this broker yet
the directory is remembered, and the answer is REPLICA_NOT_AVAILABLE (UNKNOWN_TOPIC_OR_PARTITION if there is no such
partition): so tools choose directories before a reassignment or a creation. Versions: 2 flexible.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.security import rights
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

REQUIRES = rights.whole(rights.ALTER_CLUSTER)


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
    except KafkaError as error:
        return error.code
    try:
        moves.move(node.replicas.get(*where), target)
    except KafkaError as error:
        if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return error.code
        moves.prefer(where, target)  # the partition does not exist yet, or other brokers have its replicas
        return error.code if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE
