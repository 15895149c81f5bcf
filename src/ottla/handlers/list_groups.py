"""ListGroups: the groups that this broker coordinates.

Versions: 1 throttle time; 3 flexible; 4 states and a filter by them (KIP-518); 5 types and a filter by them (KIP-848).
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.handlers.authorization import may
from ottla.security import rights
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

REQUIRES = rights.parts(rights.DESCRIBE_CLUSTER, rights.DESCRIBE_GROUP)


async def handle(node: Node, call: Call[ListGroupsRequest]) -> ListGroupsResponse:
    request = call.body
    groups = await node.groups.list_groups(request.states_filter, request.types_filter)
    if not may(node, call, rights.DESCRIBE_CLUSTER, silent=True):
        groups = [group for group in groups if may(node, call, rights.DESCRIBE_GROUP, group.group_id, silent=True)]
    return ListGroupsResponse(groups=groups)
