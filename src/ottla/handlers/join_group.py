"""JoinGroup: a member joins a classic group. The answer comes when all members have joined.

Versions: 1 rebalance time-out; 4 a new member is given an id and joins again (KIP-394); 5 static members (KIP-345);
6 flexible; 7 protocol type; 8 reason (KIP-800); 9 a leader that need not assign (KIP-814).
"""

from collections.abc import Coroutine
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.coordinators.machine import Caller
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

VERSIONS = range(0, 10)

NAME_LENGTH_MAX = 255
"""Of a client's name in a member id, so that the id stays one that can be written."""


def handle(node: Node, call: Call[JoinGroupRequest]) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
    request = call.body
    try:
        check(node, request)
        caller = Caller(call.client_id or "", f"/{call.client.address}")
        fresh = "" if request.member_id else member_id(node, request.group_instance_id or caller.client_id)
        reply = node.groups.join(request, caller, version=call.version, fresh_member_id=fresh)
    except KafkaError as error:
        return refusal(request, error)
    return reply if isinstance(reply, JoinGroupResponse) else joined(request, reply)


async def joined(request: JoinGroupRequest, reply: Coroutine[Any, Any, JoinGroupResponse]) -> JoinGroupResponse:
    try:
        return await reply
    except KafkaError as error:
        return refusal(request, error)


def refusal(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)


def check(node: Node, request: JoinGroupRequest) -> None:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
    shortest, longest = node.config.group_min_session_timeout_ms, node.config.group_max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"a session time-out is between {shortest} and {longest} ms, not {request.session_timeout_ms}",
        )


def member_id(node: Node, name: str) -> str:
    """What the client is called, and something that nobody else has."""
    from uuid import UUID  # with all that it imports, and no broker has groups when it starts

    return f"{name[:NAME_LENGTH_MAX]}-{UUID(bytes=node.random.randbytes(16), version=4)}"
