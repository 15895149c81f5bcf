"""UnregisterBroker: forget a broker that is gone for good (KIP-500)."""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.registration import unregister_broker
from ottla.handlers.deadlines import Deadline
from ottla.security import rights
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

REQUIRES = rights.whole(rights.ALTER_CLUSTER)


async def handle(node: Node, call: Call[UnregisterBrokerRequest]) -> UnregisterBrokerResponse:
    decide = partial(unregister_broker, broker_id=call.body.broker_id)
    await node.metadata.change(decide, Deadline(node).left_s())
    return UnregisterBrokerResponse()
