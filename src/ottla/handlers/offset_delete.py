"""OffsetDelete: a group forgets offsets of topics to which it is not subscribed (KIP-496).

Versions: 0.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

VERSIONS = range(0, 1)


async def handle(node: Node, call: Call[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    request = call.body
    if not request.group_id:  # where the other requests about offsets bear with it, as old consumers had no name
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group must have a name")
    return await node.groups.delete_offsets(request)
