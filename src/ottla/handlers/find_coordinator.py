"""FindCoordinator: which broker looks after a group or a transactional id.

Versions: 1 key type (transactions) and error message; 3 flexible; 4 many keys at once (KIP-699); 6 share groups.
One broker is the coordinator of everything.
"""

from ottla.addresses import advertised
from ottla.call import Call
from ottla.errors import ErrorCode
from ottla.node import Node
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

VERSIONS = range(0, 7)

GROUP, TRANSACTION = 0, 1


def handle(node: Node, call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.body
    if request.key_type not in (GROUP, TRANSACTION):
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=-1,
                    host="",
                    port=-1,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=f"key type {request.key_type} has no coordinator here",
                )
                for key in request.coordinator_keys
            ]
        )
    endpoint = advertised(node.image.brokers[node.broker_id], call.client)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node.broker_id, host=endpoint.host, port=endpoint.port)
            for key in request.coordinator_keys
        ]
    )
