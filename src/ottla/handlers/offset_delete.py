"""OffsetDelete: delete offsets of topics that the group does not subscribe to (KIP-496).

Versions: 0.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require, split
from ottla.security import rights
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

REQUIRES = rights.parts(rights.DELETE_GROUP, rights.READ_TOPIC)


async def handle(node: Node, call: Call[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    request = call.body
    require(node, call, rights.DELETE_GROUP, request.group_id)
    if not request.group_id:  # OffsetCommit and OffsetFetch accept an empty id, for old consumers
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    request.topics, refused = split(node, call, rights.READ_TOPIC, request.topics, lambda topic: topic.name)
    response = await node.groups.delete_offsets(request)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in refused:
        results = [
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ]
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
    return response
