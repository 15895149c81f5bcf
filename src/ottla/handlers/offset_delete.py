"""OffsetDelete: delete offsets of topics that the group does not subscribe to (KIP-496).

Versions: 0.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

VERSIONS = range(0, 1)


async def handle(node: Node, call: Call[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    request = call.body
    if not request.group_id:  # OffsetCommit and OffsetFetch accept an empty id, for old consumers
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    return await node.groups.delete_offsets(request)
