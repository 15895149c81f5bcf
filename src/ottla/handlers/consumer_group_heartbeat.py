"""ConsumerGroupHeartbeat: a member of a consumer group (KIP-848) joins, stays or leaves, and is told what to read.

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
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

VERSIONS = range(0, 2)

FEATURE = "group.version"
PROTOCOL = "consumer"

OWN_MEMBER_ID_FROM = 1
"""From this version on members choose their own ids."""

SUBSCRIPTION_LENGTH_MAX = 256 << 10
"""Of all topic names of one member together: they are stored in one record, in a batch with others."""


async def handle(node: Node, call: Call[ConsumerGroupHeartbeatRequest]) -> ConsumerGroupHeartbeatResponse:
    request = call.body
    if not node.image.features.get(FEATURE) or PROTOCOL not in node.config.group_coordinator_rebalance_protocols:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the consumer protocol is switched off in this cluster")
    check(request, call.version, node.config.group_consumer_assignors)
    if not request.member_id:
        request.member_id = urlsafe_b64encode(node.random.randbytes(16)).decode().rstrip("=")
    caller = Caller(call.client_id or "", f"/{call.client.address}")
    return await node.groups.consumer_heartbeat(request, caller)


def check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """What is wrong with a request whatever the group is: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    for what, text in (("group", request.group_id), ("instance", request.instance_id), ("rack", request.rack_id)):
        if text is not None and not text.strip():
            raise invalid(f"the id of a {what} is not empty")
    if not request.member_id.strip() and (version >= OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVING):
        raise invalid("a member id is needed")
    if epoch == 0:
        check_join(request)
    elif epoch == LEAVING_FOR_NOW and request.instance_id is None:
        raise invalid("only a static member leaves for now: an instance id is needed")
    elif epoch < LEAVING_FOR_NOW:
        raise invalid(f"{epoch} is no epoch of a member")
    if sum(map(len, request.subscribed_topic_names or ())) > SUBSCRIPTION_LENGTH_MAX:
        raise invalid(f"the topics of a member have more than {SUBSCRIPTION_LENGTH_MAX} characters in their names")
    offered = [name for name in assignors if name in ASSIGNORS]
    if request.server_assignor is not None and request.server_assignor not in offered:
        message = f"there is no assignor {request.server_assignor!r} here, but {', '.join(offered)}"
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms < 0:
        raise invalid("who joins has to name a rebalance time-out")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid("who joins owns no partitions, and says so with an empty list")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid("who joins subscribes, by names or by a pattern, be it to nothing")


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
