"""WriteTxnMarkers: append the markers that end transactions. Sent by coordinators, or by an admin for a hanging one.

Versions: 1 flexible; 2 the transaction version of the producer (KIP-1228).
All markers of a request are appended before anything is waited for, so that the partitions are replicated at the same
time. `handle` returns a future if there is something to wait for: the coordinator's next request is handled meanwhile.

A coordinator of another broker says for which topic and leader epoch a marker is meant, and numbers its requests
(`ottla.wire.extended`): a request that was held up on its way must not end a later transaction.
"""

import asyncio
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.image import Image
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.transactions import TransactionMarker
from ottla.security import rights
from ottla.topic_partition import TopicPartition
from ottla.wire.extended.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.message import ZERO_UUID
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

REQUIRES = rights.whole(rights.ALTER_CLUSTER, rights.CLUSTER_ACTION)

COORDINATOR_ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors of the group coordinator. A sender of markers for __consumer_offsets gets NOT_LEADER_OR_FOLLOWER instead."""

Unreplicated = list[tuple[WritableTxnMarkerPartitionResult, asyncio.Future[None]]]
"""Results of markers that are appended, each with the future that is done when its marker is replicated."""


def handle(
    node: Node, call: Call[WriteTxnMarkersRequest]
) -> WriteTxnMarkersResponse | asyncio.Future[WriteTxnMarkersResponse]:
    request = call.body
    if request.number >= 0 and not node.markers.admit_request(request.sender, request.sender_epoch, request.number):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "a newer request of this coordinator has come before")
    unreplicated: Unreplicated = []
    response = WriteTxnMarkersResponse(markers=[write(node, marker, unreplicated) for marker in request.markers])
    if not unreplicated:
        return response
    return wait_for_replicas(response, unreplicated, node.config.request_timeout_ms / 1000)


def write(node: Node, asked: WritableTxnMarker, unreplicated: Unreplicated) -> WritableTxnMarkerResult:
    """Append one marker to all its partitions. Those that have to be waited for are added to `unreplicated`."""
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    topics = []
    for topic in asked.topics:
        partitions = []
        leader_epochs = topic.leader_epochs or [-1] * len(topic.partition_indexes)
        for index, leader_epoch in zip(topic.partition_indexes, leader_epochs, strict=False):
            result = WritableTxnMarkerPartitionResult(partition_index=index)
            partitions.append(result)
            try:
                require_topic(node.image, topic)
                replicated = node.markers.append(TopicPartition(topic.name, index), marker, leader_epoch)
            except KafkaError as error:
                result.error_code = translate_error(error)
            else:
                if replicated is not None:
                    unreplicated.append((result, replicated))
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics)


def require_topic(image: Image, asked: WritableTxnMarkerTopic) -> None:
    """KafkaError if the topic is not the one that the coordinator means, but a new one with its name."""
    if asked.topic_id != ZERO_UUID:
        topic = image.topic(asked.name)
        if topic is None or topic.id != asked.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)


def wait_for_replicas(
    response: WriteTxnMarkersResponse, unreplicated: Unreplicated, timeout_s: float
) -> asyncio.Future[WriteTxnMarkersResponse]:
    """A future of the response, done when every marker is replicated or has failed, or when the time-out is over."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[WriteTxnMarkersResponse] = loop.create_future()
    left = len(unreplicated)

    def settle(result: WritableTxnMarkerPartitionResult, replicated: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        error = None if replicated.cancelled() else replicated.exception()
        if answer.done():  # the time-out is over, or the coordinator is gone
            return
        result.error_code = ErrorCode.NONE if error is None else translate_error(error)
        if not left:
            timer.cancel()
            answer.set_result(response)

    def expire() -> None:
        if not answer.done():
            answer.set_result(response)

    timer = loop.call_later(timeout_s, expire)
    for result, replicated in unreplicated:
        result.error_code = ErrorCode.REQUEST_TIMED_OUT  # unless it is replicated in time
        replicated.add_done_callback(partial(settle, result))
    return answer


def translate_error(error: BaseException) -> ErrorCode:
    if not isinstance(error, KafkaError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in COORDINATOR_ERRORS else error.code
