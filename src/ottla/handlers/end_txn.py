"""EndTxn: commit or abort a transaction. The response is sent once the decision is stored; the markers follow.

Versions: 2 PRODUCER_FENCED; 3 flexible; 4 TRANSACTION_ABORTABLE; 5 the producer's next id and epoch in the response
(KIP-890).
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require
from ottla.security import rights
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

REQUIRES = rights.parts(rights.WRITE_TRANSACTIONAL_ID)
RAISED_EPOCH_FROM = 5


async def handle(node: Node, call: Call[EndTxnRequest]) -> EndTxnResponse:
    request = call.body
    require(node, call, rights.WRITE_TRANSACTIONAL_ID, request.transactional_id)
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    version = 2 if call.version >= RAISED_EPOCH_FROM else 0
    return await node.transactions.end(request, version=version)
