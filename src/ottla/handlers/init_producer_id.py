"""InitProducerId: a producer id and epoch for an idempotent producer, or for the new owner of a transactional id.

Versions: 2 flexible; 3 the producer's current id and epoch (KIP-360); 4 PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE.
A producer without a transactional id gets a new id each time, as in Kafka.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may, may_any
from ottla.security import rights
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

REQUIRES = rights.parts(rights.WRITE_TRANSACTIONAL_ID, rights.IDEMPOTENT_WRITE, rights.WRITE_TOPIC)


async def handle(node: Node, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.body
    if request.transactional_id is None:
        if not (may(node, call, rights.IDEMPOTENT_WRITE, silent=True) or may_any(node, call, rights.WRITE_TOPIC)):
            may(node, call, rights.IDEMPOTENT_WRITE)  # for the log
            return refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return InitProducerIdResponse(producer_id=await node.producer_ids.next(), producer_epoch=0)
    if not may(node, call, rights.WRITE_TRANSACTIONAL_ID, request.transactional_id):
        return refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not request.transactional_id or (request.producer_id < 0) != (request.producer_epoch < 0):
        return refuse(ErrorCode.INVALID_REQUEST)
    try:
        return await node.transactions.init_producer_id(request)
    except KafkaError as error:
        return refuse(error.code)


def refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
