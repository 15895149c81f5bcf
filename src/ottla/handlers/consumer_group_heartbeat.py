"""ConsumerGroupHeartbeat: a member of a consumer group (KIP-848) joins, stays or leaves, and is told what to read.

Versions: 1 members choose their own ids (KIP-1082), subscriptions by pattern.
"""

from base64 import urlsafe_b64encode

from ottla.call import Call
from ottla.coordinators.consumer_groups import check_heartbeat
from ottla.coordinators.machine import Caller
from ottla.errors import ErrorCode, KafkaError
from ottla.node import Node
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

VERSIONS = range(0, 2)

FEATURE = "group.version"
PROTOCOL = "consumer"


async def handle(node: Node, call: Call[ConsumerGroupHeartbeatRequest]) -> ConsumerGroupHeartbeatResponse:
    request = call.body
    if not node.image.features.get(FEATURE) or PROTOCOL not in node.config.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "this cluster has no consumer groups: group.version is 0")
    check_heartbeat(request, call.version, node.config.group_consumer_assignors)
    if not request.member_id:
        request.member_id = urlsafe_b64encode(node.random.randbytes(16)).decode().rstrip("=")
    caller = Caller(call.client_id or "", f"/{call.client.address}")
    response: ConsumerGroupHeartbeatResponse = await node.groups.run(
        request.group_id, lambda groups, turn: groups.consumer_group_heartbeat(request, caller, turn)
    )
    return response
