"""DeleteRecords: delete the records below an offset; -1 means below the high watermark.

Versions: 2 flexible. The new log start is on disk before the answer is sent, so no restart brings records back.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.topics import is_internal
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

VERSIONS = range(0, 3)

HIGH_WATERMARK = -1
UNKNOWN = -1


async def handle(node: Node, call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    topics = []
    for topic in call.body.topics:
        offsets = {partition.partition_index: partition.offset for partition in topic.partitions}
        results = [delete(node, topic.name, index, offset) for index, offset in offsets.items()]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    deleted = [result for topic in topics for result in topic.partitions if result.error_code == ErrorCode.NONE]
    if deleted:
        try:
            await node.replication.log_starts.write()
        except OSError:
            for result in deleted:
                result.error_code, result.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, UNKNOWN
    return DeleteRecordsResponse(topics=topics)


def delete(node: Node, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        partition = node.replicas.get(topic, index)
        if is_internal(topic):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic: clients cannot delete its records"
            )
        partition.require_leader()
        start = partition.delete_records(None if offset == HIGH_WATERMARK else offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=start)
