"""SyncGroup: a member of a classic group asks for its assignment, and the leader brings everybody's.

Versions: 1 throttle time; 3 static members (KIP-345); 4 flexible; 5 protocol type and name, to be compared.
"""

from collections.abc import Coroutine
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

VERSIONS = range(0, 6)

PROTOCOL_FROM = 5


def handle(node: Node, call: Call[SyncGroupRequest]) -> SyncGroupResponse | Coroutine[Any, Any, SyncGroupResponse]:
    request = call.body
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
    if call.version >= PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a member must say which protocol it was told")
    return node.groups.sync(request)
