"""DescribeGroups: state and members of classic groups.

Versions: 1 throttle time; 3 authorized operations (KIP-430); 4 instance ids (KIP-345); 5 flexible; 6 a missing group is
GROUP_ID_NOT_FOUND with a message (KIP-1043), where older versions get a group in the state Dead.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.coordinators.classic.states import ClassicState
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import list_operations, require
from ottla.security import rights
from ottla.security.operations import ResourceType
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

REQUIRES = rights.parts(rights.DESCRIBE_GROUP)

NOT_FOUND_FROM = 6


async def handle(node: Node, call: Call[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    groups = [await describe(node, call, group_id) for group_id in call.body.groups]
    if call.body.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = list_operations(node, call, ResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=groups)


async def describe(node: Node, call: Call[DescribeGroupsRequest], group_id: str) -> DescribedGroup:
    try:
        require(node, call, rights.DESCRIBE_GROUP, group_id)
        return await node.groups.describe(group_id)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        missing = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
        if call.version >= NOT_FOUND_FROM:
            missing.error_code, missing.error_message = error.code, error.message
        return missing
