"""SyncGroup: a member of a classic group gets its assignment; the leader sends the assignments of all members.

Versions: 1 throttle time; 3 static members (KIP-345); 4 flexible; 5 protocol type and name, which must match those of
the group.
"""

from collections.abc import Coroutine
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import check_again, require
from ottla.security import rights
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

REQUIRES = rights.parts(rights.READ_GROUP)

PROTOCOL_FROM = 5


def handle(node: Node, call: Call[SyncGroupRequest]) -> SyncGroupResponse | Coroutine[Any, Any, SyncGroupResponse]:
    request = call.body
    require(node, call, rights.READ_GROUP, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if call.version >= PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol type and name are missing")
    answer = node.groups.sync(request)
    return answer if node.authorizer is None else check_again(node, call, rights.READ_GROUP, request.group_id, answer)
