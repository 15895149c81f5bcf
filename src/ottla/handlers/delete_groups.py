"""DeleteGroups: delete empty groups with their offsets. Each group has a result of its own.

Versions: 1 throttle time; 2 flexible.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import KafkaError
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

VERSIONS = range(0, 3)


async def handle(node: Node, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[await delete(node, name) for name in dict.fromkeys(call.body.groups_names)])


async def delete(node: Node, group_id: str) -> DeletableGroupResult:
    try:
        return await node.groups.delete(group_id)
    except KafkaError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
