"""DeleteGroups: delete empty groups with their offsets. Each group has a result of its own.

Versions: 1 throttle time; 2 flexible.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import KafkaError
from ottla.handlers.authorization import require
from ottla.security import rights
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

REQUIRES = rights.parts(rights.DELETE_GROUP)


async def handle(node: Node, call: Call[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    names = dict.fromkeys(call.body.groups_names)
    return DeleteGroupsResponse(results=[await delete(node, call, name) for name in names])


async def delete(node: Node, call: Call[DeleteGroupsRequest], group_id: str) -> DeletableGroupResult:
    try:
        require(node, call, rights.DELETE_GROUP, group_id)
        return await node.groups.delete(group_id)
    except KafkaError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
