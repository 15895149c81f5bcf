"""AddPartitionsToTxn: add partitions to a transaction, or verify that they were added.

Versions: 2 PRODUCER_FENCED; 3 flexible; 4 many transactions at once, from brokers (KIP-890); 5 TRANSACTION_ABORTABLE.
"""

import asyncio
from collections.abc import Mapping

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.topics import is_internal
from ottla.coordinators.machine import ProducerIdentity
from ottla.coordinators.transactions.admission import wait_for_last_transaction
from ottla.coordinators.transactions.transaction import EPOCH_BUMP
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may, require
from ottla.security import rights
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

REQUIRES = rights.parts(rights.CLUSTER_ACTION, rights.WRITE_TRANSACTIONAL_ID, rights.WRITE_TOPIC)
BROKERS_FROM = 4

Codes = Mapping[TopicPartition, ErrorCode]


async def handle(node: Node, call: Call[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnResponse:
    """The transactions of a request do not wait for each other: their records are replicated together."""
    if call.version >= BROKERS_FROM:
        require(node, call, rights.CLUSTER_ACTION)
    asked = [handle_transaction(node, call, transaction) for transaction in call.body.transactions]
    results = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def handle_transaction(
    node: Node, call: Call[AddPartitionsToTxnRequest], transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    version = call.version
    partitions = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    codes = find_unauthorized(node, call, transaction, partitions) if version < BROKERS_FROM else {}
    if not codes:
        forbidden = find_forbidden(node, call, partitions)
        if node.catch_up is not None and any(
            node.image.partition(*partition) is None for partition in partitions if partition.topic not in forbidden
        ):
            await node.catch_up()  # another broker may have created them a moment ago
        codes = find_unusable(node, partitions, forbidden)
    if not codes:
        try:
            codes = await add_or_verify(node, version, transaction, partitions)
        except KafkaError as error:
            codes = dict.fromkeys(partitions, error.code)
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=codes.get(TopicPartition(topic.name, index), ErrorCode.NONE),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


def find_unauthorized(
    node: Node,
    call: Call[AddPartitionsToTxnRequest],
    transaction: AddPartitionsToTxnTransaction,
    partitions: list[TopicPartition],
) -> Codes:
    if may(node, call, rights.WRITE_TRANSACTIONAL_ID, transaction.transactional_id):
        return {}
    return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def find_forbidden(node: Node, call: Call[AddPartitionsToTxnRequest], partitions: list[TopicPartition]) -> set[str]:
    """Topics that the client may not write to. Brokers have checked that when they got the records."""
    if call.version >= BROKERS_FROM:
        return set()
    topics = {partition.topic for partition in partitions}
    return {topic for topic in topics if is_internal(topic) or not may(node, call, rights.WRITE_TOPIC, topic)}


def find_unusable(node: Node, partitions: list[TopicPartition], forbidden: set[str]) -> Codes:
    """The error of each partition if one of them does not exist or is not writable: then none of them is added."""
    found = {}
    for partition in partitions:
        if partition.topic in forbidden:
            found[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif node.image.partition(*partition) is None:
            found[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {each: found.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions} if found else {}


async def add_or_verify(
    node: Node, version: int, transaction: AddPartitionsToTxnTransaction, partitions: list[TopicPartition]
) -> Codes:
    transactional_id = transaction.transactional_id
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        missing = await node.transactions.find_missing_partitions(transactional_id, producer, partitions)
        return dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE)
    if version >= BROKERS_FROM:  # a broker that is refused tries again by itself
        await node.transactions.add_partitions(transactional_id, producer, partitions, version=EPOCH_BUMP)
    else:
        await wait_for_last_transaction(
            lambda: node.transactions.add_partitions(transactional_id, producer, partitions, version=0)
        )
    return {}
