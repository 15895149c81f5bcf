"""TxnOffsetCommit: offsets that are committed together with the records of a transaction.

Versions: 2 leader epoch; 3 flexible, the member that commits (KIP-447); 4 TRANSACTION_ABORTABLE; 5 the broker adds the
group's partition to the transaction (KIP-890).
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.topics import CONSUMER_OFFSETS
from ottla.coordinators.machine import ProducerIdentity
from ottla.coordinators.transactions.admission import TransactionVerification
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require, split
from ottla.security import rights
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

REQUIRES = rights.parts(rights.WRITE_TRANSACTIONAL_ID, rights.READ_GROUP, rights.READ_TOPIC)
ABORTABLE_FROM = 4
ADDED_FROM = 5


async def handle(node: Node, call: Call[TxnOffsetCommitRequest]) -> TxnOffsetCommitResponse:
    request = call.body
    require(node, call, rights.WRITE_TRANSACTIONAL_ID, request.transactional_id)
    require(node, call, rights.READ_GROUP, request.group_id)
    request.topics, refused = split(node, call, rights.READ_TOPIC, request.topics, lambda topic: topic.name)
    if refused and not request.topics:
        return refuse(TxnOffsetCommitResponse(), refused)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    await node.groups.create_topic()
    if node.catch_up is not None and any(node.image.topic(topic.name) is None for topic in request.topics):
        await node.catch_up()
    await admit_offsets(node, request, call.version)
    return refuse(await node.groups.commit_transactional_offsets(request), refused)


def refuse(response: TxnOffsetCommitResponse, topics: list[TxnOffsetCommitRequestTopic]) -> TxnOffsetCommitResponse:
    """Add the topics that the client may not read to the answer."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in topics:
        results = [
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ]
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
    return response


async def admit_offsets(node: Node, request: TxnOffsetCommitRequest, version: int) -> None:
    """Make sure that the partition which keeps the group's offsets is part of the transaction."""
    verification = TransactionVerification.choose(version, abortable_from=ABORTABLE_FROM, added_from=ADDED_FROM)
    adds = verification is TransactionVerification.ADD_PARTITION
    if not adds and not node.config.transaction_partition_verification_enable:
        return
    try:
        partition = node.replicas.get(CONSUMER_OFFSETS, node.groups.partition_for(request.group_id))
        partition.require_leader()
    except KafkaError:
        raise KafkaError(ErrorCode.NOT_COORDINATOR) from None
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    refused = await node.admission.admit(request.transactional_id, producer, [partition], verification)
    error = refused.get(partition)
    if error is not None:
        # Clients of a coordinator retry after COORDINATOR_NOT_AVAILABLE, not after NOT_ENOUGH_REPLICAS.
        again = error.code is ErrorCode.NOT_ENOUGH_REPLICAS
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE if again else error.code, error.message)
