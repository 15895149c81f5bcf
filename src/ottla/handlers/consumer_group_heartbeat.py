"""ConsumerGroupHeartbeat: a member of a consumer group (KIP-848) joins, stays or leaves, and gets its assignment.

Versions: 1 members choose their own ids (KIP-1082), subscriptions by pattern.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.coordinators.consumer.assignors import ASSIGNORS
from ottla.coordinators.consumer.members import LEAVING, LEAVING_FOR_NOW
from ottla.coordinators.machine import Caller
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import build_sight, require
from ottla.security import rights
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

REQUIRES = rights.parts(rights.READ_GROUP, rights.DESCRIBE_TOPIC)

FEATURE = "group.version"
PROTOCOL = "consumer"

OWN_MEMBER_ID_FROM = 1
"""The version from which members choose their own ids."""

SUBSCRIPTION_LENGTH_MAX = 256 << 10
"""Characters of all topic names of one member together. They are stored in one record, in a batch with others."""


async def handle(node: Node, call: Call[ConsumerGroupHeartbeatRequest]) -> ConsumerGroupHeartbeatResponse:
    request = call.body
    if not node.image.features.get(FEATURE) or PROTOCOL not in node.config.group_coordinator_rebalance_protocols:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "the consumer protocol is disabled (feature group.version, group.coordinator.rebalance.protocols)",
        )
    require(node, call, rights.READ_GROUP, request.group_id)
    for name in request.subscribed_topic_names or ():
        require(node, call, rights.DESCRIBE_TOPIC, name)
    check(request, call.version, node.config.group_consumer_assignors)
    if not request.member_id:
        request.member_id = urlsafe_b64encode(node.random.randbytes(16)).decode().rstrip("=")
    caller = Caller(call.client_id or "", f"/{call.client.address}", build_sight(node, call))
    return await node.groups.consumer_heartbeat(request, caller)


def check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Check what does not depend on the group: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    for what, text in (("group", request.group_id), ("instance", request.instance_id), ("rack", request.rack_id)):
        if text is not None and not text.strip():
            raise invalid_request(f"the {what} id is empty")
    if not request.member_id.strip() and (version >= OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVING):
        raise invalid_request("the member id is empty")
    if epoch == 0:
        check_join(request)
    elif epoch == LEAVING_FOR_NOW and request.instance_id is None:
        raise invalid_request(f"epoch {LEAVING_FOR_NOW} is for static members: the instance id is missing")
    elif epoch < LEAVING_FOR_NOW:
        raise invalid_request(f"{epoch} is not a valid member epoch")
    if sum(map(len, request.subscribed_topic_names or ())) > SUBSCRIPTION_LENGTH_MAX:
        raise invalid_request(
            f"the topic names of the subscription have more than {SUBSCRIPTION_LENGTH_MAX} characters"
        )
    offered = [name for name in assignors if name in ASSIGNORS]
    if request.server_assignor is not None and request.server_assignor not in offered:
        message = f"there is no assignor {request.server_assignor!r}; the assignors are {', '.join(offered)}"
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms < 0:
        raise invalid_request("a joining member must send a rebalance time-out")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid_request("a joining member must send an empty list of owned partitions")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid_request("a joining member must send topic names or a pattern")


def invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
