"""InitProducerId: an identity for an idempotent producer.

Versions: 2 flexible; 3 the producer's current id and epoch (KIP-360); 4 PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE.
A producer without a transactional id gets a fresh id each time, as in Kafka: its old one is nobody's any more.
"""

from ottla.call import Call
from ottla.errors import ErrorCode
from ottla.node import Node
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

VERSIONS = range(0, 6)


async def handle(node: Node, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.body
    if request.transactional_id == "":
        return refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        # No transaction coordinator yet. Not a retriable code: the client would wait for it for ever.
        return refused(ErrorCode.UNSUPPORTED_VERSION)
    return InitProducerIdResponse(producer_id=await node.producer_ids.next(), producer_epoch=0)


def refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
