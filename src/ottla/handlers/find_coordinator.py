"""FindCoordinator: which broker coordinates a group or a transactional id.

Versions: 1 key type (transactions) and error message; 3 flexible; 4 many keys at once (KIP-699); 6 share groups.
The coordinator of a key is the leader of its partition of the internal topic, which is created on first use.
"""

from ottla.broker.addresses import can_reach, choose_endpoint
from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require
from ottla.security import rights
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

REQUIRES = rights.parts(rights.DESCRIBE_GROUP, rights.DESCRIBE_TRANSACTIONAL_ID)

GROUP, TRANSACTION = 0, 1
RIGHTS = {GROUP: rights.DESCRIBE_GROUP, TRANSACTION: rights.DESCRIBE_TRANSACTIONAL_ID}


async def handle(node: Node, call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.body
    return FindCoordinatorResponse(
        coordinators=[await find(node, call, key, request.key_type) for key in request.coordinator_keys]
    )


async def find(node: Node, call: Call[FindCoordinatorRequest], key: str, key_type: int) -> Coordinator:
    client = call.client
    try:
        if key_type in RIGHTS:
            require(node, call, RIGHTS[key_type], key)
        if key_type not in (GROUP, TRANSACTION):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"key type {key_type} is neither 0 (group) nor 1 (transaction)")
        coordinator = node.groups if key_type == GROUP else node.transactions
        broker = await coordinator.find_broker(key)
        shown = node.image.broker(broker.id)
        if shown is None or shown.fenced:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is out of the cluster")
        if not can_reach(broker, client):
            message = f"broker {broker.id} coordinates {key!r} and has no address for the listener {client.listener}"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message or None
        )
    endpoint = choose_endpoint(broker, client)
    return Coordinator(key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port)
