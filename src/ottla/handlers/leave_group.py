"""LeaveGroup: members of a classic group leave it, or an administrator removes them.

Versions: 1 throttle time; 3 many members, by member id or instance id (KIP-345); 4 flexible; 5 reason (KIP-800).
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require
from ottla.security import rights
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

REQUIRES = rights.parts(rights.READ_GROUP)


async def handle(node: Node, call: Call[LeaveGroupRequest]) -> LeaveGroupResponse:
    request = call.body
    require(node, call, rights.READ_GROUP, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    try:
        return await node.groups.leave(request)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            return report_unknown_members(request)
        raise


def report_unknown_members(request: LeaveGroupRequest) -> LeaveGroupResponse:
    """The group does not exist: every member gets UNKNOWN_MEMBER_ID."""
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for member in request.members
        ]
    )
