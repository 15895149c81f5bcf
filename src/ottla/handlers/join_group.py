"""JoinGroup: a member joins a classic group. The response is sent when all members have joined.

Versions: 1 rebalance time-out; 4 a new member gets an id and joins again (KIP-394); 5 static members (KIP-345);
6 flexible; 7 protocol type; 8 reason (KIP-800); 9 a leader that skips the assignment (KIP-814).
If the group is a consumer group, the broker assigns partitions: of those topics only that the client may see.
"""

from collections.abc import Coroutine
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.coordinators.machine import Caller
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import build_sight, require
from ottla.security import rights
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

REQUIRES = rights.parts(rights.READ_GROUP, rights.DESCRIBE_TOPIC)

NAME_LENGTH_MAX = 255
"""How much of a client's name goes into a member id. A string of more than 32767 bytes could not be encoded."""


def handle(node: Node, call: Call[JoinGroupRequest]) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
    request = call.body
    require(node, call, rights.READ_GROUP, request.group_id)
    try:
        check(node, request)
        caller = Caller(call.client_id or "", f"/{call.client.address}", build_sight(node, call))
        fresh = "" if request.member_id else make_member_id(node, request.group_instance_id or caller.client_id)
        reply = node.groups.join(request, caller, version=call.version, fresh_member_id=fresh)
    except KafkaError as error:
        return refuse(request, error)
    return reply if isinstance(reply, JoinGroupResponse) else await_join(node, call, reply)


async def await_join(
    node: Node, call: Call[JoinGroupRequest], reply: Coroutine[Any, Any, JoinGroupResponse]
) -> JoinGroupResponse:
    request = call.body
    try:
        answer = await reply
    except KafkaError as error:
        return refuse(request, error)
    require(node, call, rights.READ_GROUP, request.group_id)  # the wait may have been long
    return answer


def refuse(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)


def check(node: Node, request: JoinGroupRequest) -> None:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    shortest, longest = node.config.group_min_session_timeout_ms, node.config.group_max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"a session time-out is between {shortest} and {longest} ms, not {request.session_timeout_ms}",
        )


def make_member_id(node: Node, name: str) -> str:
    """The client's name followed by a random UUID."""
    from uuid import UUID  # imported late: it imports much, and a broker that starts has no use for it

    return f"{name[:NAME_LENGTH_MAX]}-{UUID(bytes=node.random.randbytes(16), version=4)}"
