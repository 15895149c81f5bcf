"""ListOffsets: the first offset, the end offset, or the offset for a timestamp.

Versions: 2 isolation level; 4 leader epoch; 6 flexible; 7 the record with the largest timestamp (KIP-734); 8 the
earliest offset on local disk (KIP-405); 9 the latest on tiered storage; 10 time-out; 11 the earliest not yet uploaded.
There is no tiered storage, so the local start is the log start, and the tiered offsets are unknown (-1).
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may, refusal
from ottla.replication.partition import Partition
from ottla.security import rights
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

REQUIRES = rights.parts(rights.DESCRIBE_TOPIC)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

NOT_AVAILABLE_FROM = 5
"""The first version with OFFSET_NOT_AVAILABLE. Older clients try again after LEADER_NOT_AVAILABLE."""

CONSUMER = -1
DEBUG = -2
READ_COMMITTED = 1

Found = tuple[int, int, int]
"""Offset, timestamp and leader epoch; -1 where there is none."""

UNKNOWN: Found = (-1, -1, -1)


def handle(node: Node, call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    asked = call.body.topics
    repeated = () if len(asked) == 1 and len(asked[0].partitions) == 1 else find_repeated(asked)
    topics = []
    for topic in asked:
        name = topic.name
        allowed = node.authorizer is None or may(node, call, rights.DESCRIBE_TOPIC, name)
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            try:
                if not allowed:
                    raise refusal(rights.DESCRIBE_TOPIC)
                if repeated and (name, index) in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                offset, timestamp, epoch = find(node.replicas.get(name, index), partition, call)
            except KafkaError as error:
                code = error.code
                if code == ErrorCode.OFFSET_NOT_AVAILABLE and call.version < NOT_AVAILABLE_FROM:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                answer = ListOffsetsPartitionResponse(partition_index=index, error_code=code)
            else:
                answer = ListOffsetsPartitionResponse(
                    partition_index=index, offset=offset, timestamp=timestamp, leader_epoch=epoch
                )
            partitions.append(answer)
        topics.append(ListOffsetsTopicResponse(name=name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def find_repeated(topics: Sequence[ListOffsetsTopic]) -> Container[tuple[str, int]]:
    """Partitions that the request names more than once."""
    asked = Counter((topic.name, each.partition_index) for topic in topics for each in topic.partitions)
    return {key for key, times in asked.items() if times > 1}


def find(partition: Partition, asked: ListOffsetsPartition, call: Call[ListOffsetsRequest]) -> Found:
    if call.body.replica_id == DEBUG:
        partition.require_epoch(asked.current_leader_epoch)  # followers answer too
    else:
        partition.require_leader(asked.current_leader_epoch)
    is_consumer = call.body.replica_id == CONSUMER
    timestamp = asked.timestamp
    if timestamp == LATEST:
        if is_consumer:
            require_known_end(partition)
        return find_visible_end(partition, call), -1, partition.leader_epoch
    if timestamp < 0:
        lookup = SPECIAL.get(timestamp)
        if lookup is None or call.version < FIRST_VERSION.get(timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        result = lookup(partition, find_visible_end(partition, call))
        if result is not UNKNOWN or timestamp != MAX_TIMESTAMP:
            return result
    else:
        found = partition.log.find_offset_for_timestamp(timestamp, find_visible_end(partition, call))
        if found is not None:
            return found.offset, found.timestamp, found.leader_epoch
    if is_consumer:
        require_known_end(partition)
    return UNKNOWN


def require_known_end(partition: Partition) -> None:
    """OFFSET_NOT_AVAILABLE while this leader does not know yet how far the previous leader has committed.

    Its high watermark may be older. A client that was told the end by the previous leader must not see it go back.
    """
    if partition.high_watermark.value < partition.log.epochs.latest_start:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)


def find_visible_end(partition: Partition, call: Call[ListOffsetsRequest]) -> int:
    if call.body.replica_id != CONSUMER:
        return partition.log.end_offset
    if call.body.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark.value


def find_earliest(partition: Partition, end: int) -> Found:
    start = partition.log.log_start_offset
    return start, -1, partition.log.epochs.epoch_at(start)


def find_max_timestamp(partition: Partition, end: int) -> Found:
    found = partition.log.find_max_timestamp()
    return UNKNOWN if found is None or found.offset >= end else (found.offset, found.timestamp, found.leader_epoch)


def find_tiered(partition: Partition, end: int) -> Found:
    return UNKNOWN


SPECIAL: dict[int, Callable[[Partition, int], Found]] = {
    EARLIEST: find_earliest,
    MAX_TIMESTAMP: find_max_timestamp,
    EARLIEST_LOCAL: find_earliest,
    LATEST_TIERED: find_tiered,
    EARLIEST_PENDING_UPLOAD: find_tiered,
}
