"""InitProducerId: a producer id and epoch for an idempotent producer, or for the new owner of a transactional id.

Versions: 2 flexible; 3 the producer's current id and epoch (KIP-360); 4 PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE.
A producer without a transactional id gets a new id each time, as in Kafka.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

VERSIONS = range(0, 6)


async def handle(node: Node, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.body
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await node.producer_ids.next(), producer_epoch=0)
    if not request.transactional_id or (request.producer_id < 0) != (request.producer_epoch < 0):
        return refuse(ErrorCode.INVALID_REQUEST)
    try:
        return await node.transactions.init_producer_id(request)
    except KafkaError as error:
        return refuse(error.code)


def refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
