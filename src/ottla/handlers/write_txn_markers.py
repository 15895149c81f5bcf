"""WriteTxnMarkers: append the markers that end transactions. Sent by coordinators, or by an admin for a hanging one.

Versions: 1 flexible; 2 the transaction version of the producer (KIP-1228).
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.transactions import TransactionMarker
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

VERSIONS = range(1, 3)

COORDINATOR_ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors of the group coordinator. A sender of markers for __consumer_offsets gets NOT_LEADER_OR_FOLLOWER instead."""


async def handle(node: Node, call: Call[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[await write(node, marker) for marker in call.body.markers])


async def write(node: Node, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    topics = []
    for topic in asked.topics:
        partitions = [
            WritableTxnMarkerPartitionResult(
                partition_index=index, error_code=await write_one(node, topic.name, index, marker)
            )
            for index in topic.partition_indexes
        ]
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics)


async def write_one(node: Node, topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
    try:
        replicated = node.markers.append(TopicPartition(topic, index), marker)
        if replicated is not None:
            await replicated
    except KafkaError as error:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in COORDINATOR_ERRORS else error.code
    return ErrorCode.NONE
