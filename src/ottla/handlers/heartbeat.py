"""Heartbeat: keeps a member of a classic group alive. The response may tell it to join again.

Versions: 1 throttle time; 3 static members (KIP-345); 4 flexible.
"""

from collections.abc import Coroutine
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require
from ottla.security import rights
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

REQUIRES = rights.parts(rights.READ_GROUP)


def handle(node: Node, call: Call[HeartbeatRequest]) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
    request = call.body
    require(node, call, rights.READ_GROUP, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    try:
        return node.groups.heartbeat(request)
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # its session starts anew when the group is loaded
        raise
