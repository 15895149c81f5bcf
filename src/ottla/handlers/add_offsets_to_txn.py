"""AddOffsetsToTxn: add the partition of `__consumer_offsets` that keeps a group's offsets to a transaction.

Versions: 2 PRODUCER_FENCED; 3 flexible; 4 TRANSACTION_ABORTABLE.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.topics import CONSUMER_OFFSETS
from ottla.coordinators.machine import ProducerIdentity
from ottla.coordinators.transactions.admission import wait_for_last_transaction
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require
from ottla.security import rights
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

REQUIRES = rights.parts(rights.WRITE_TRANSACTIONAL_ID, rights.READ_GROUP)


async def handle(node: Node, call: Call[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    request = call.body
    require(node, call, rights.WRITE_TRANSACTIONAL_ID, request.transactional_id)
    require(node, call, rights.READ_GROUP, request.group_id)
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    partition = TopicPartition(CONSUMER_OFFSETS, node.groups.partition_for(request.group_id))
    await wait_for_last_transaction(
        lambda: node.transactions.add_partitions(request.transactional_id, producer, [partition], version=0)
    )
    return AddOffsetsToTxnResponse()
