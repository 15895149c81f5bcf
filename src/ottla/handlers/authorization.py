"""What handlers ask the authorizer. Without one, everything is allowed.

Every denial is one line of the audit log, unless the client did not ask for the resource by name: what a list leaves
out, and rights of which another one is enough, are not worth a line.
"""

from asyncio import iscoroutine
from collections.abc import Callable, Iterable
from logging import DEBUG
from typing import Any, TypeVar

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.coordinators.machine import Sight
from ottla.errors import ErrorCode, KafkaError
from ottla.security import audit, operations, rights
from ottla.security.authorizer import REMEMBERED_NAME_LENGTH_MAX
from ottla.security.operations import CLUSTER_NAME, ResourceType
from ottla.security.rights import Right
from ottla.wire import frames

ALL_OPERATIONS = {
    ResourceType.TOPIC: operations.ON_TOPIC,
    ResourceType.GROUP: operations.ON_GROUP,
    ResourceType.CLUSTER: operations.ON_CLUSTER,
}

FAILURES: dict[ResourceType, tuple[ErrorCode, str]] = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
    ResourceType.DELEGATION_TOKEN: (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "Delegation Token authorization failed.",
    ),
    ResourceType.USER: (ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Delegation Token authorization failed."),
}
"""Error code and message by type of resource, as in Kafka."""

Item = TypeVar("Item")

REMEMBERED_MAX = 32
"""Rights that are remembered with a connection: nearly every request asks for one that the last ones asked for too.
The authorizer would find its own decision too, in 0.4 us instead of 0.2."""

is_logged = audit.logger.isEnabledFor


def may(node: Node, call: Call[Any], right: Right, name: str = CLUSTER_NAME, *, silent: bool = False) -> bool:
    """Whether the client has the right on the resource. A denial is logged, unless `silent`."""
    authorizer = node.authorizer
    if authorizer is None:
        return True
    client, key = call.client, (right, name)
    if client.allowed.get(key) is authorizer.acls and not is_logged(DEBUG):
        return True
    allowed = authorizer.allows(client, right, name)
    if allowed and len(name) <= REMEMBERED_NAME_LENGTH_MAX:
        if len(client.allowed) >= REMEMBERED_MAX:
            client.allowed.clear()
        client.allowed[key] = authorizer.acls
    if (not allowed and not silent) or (allowed and audit.logs_allowed()):
        verdict = authorizer.judge(call.client, right.operation, right.resource_type, name)
        audit.log_decision(call.client, right, name, frames.api(call.api_key).name, verdict)
    return allowed


def may_any(node: Node, call: Call[Any], right: Right) -> bool:
    """Whether the client has the right on at least one resource, existing or not."""
    return node.authorizer is None or node.authorizer.allows_any(call.client, right)


def require(node: Node, call: Call[Any], right: Right, name: str = CLUSTER_NAME) -> None:
    """The error of Kafka for the type of the resource, unless the client has the right."""
    if not may(node, call, right, name):
        raise refusal(right)


def require_one(node: Node, call: Call[Any], rights: tuple[Right, ...]) -> None:
    """One of these rights on the cluster. The last one is logged if it is missing too."""
    for right in rights[:-1]:
        if may(node, call, right, silent=True):
            return
    require(node, call, rights[-1])


def refusal(right: Right) -> KafkaError:
    return KafkaError(*FAILURES[right.resource_type])


def split(
    node: Node, call: Call[Any], right: Right, items: Iterable[Item], get_name: Callable[[Item], str]
) -> tuple[list[Item], list[Item]]:
    """The items that the client may use, and the others."""
    if node.authorizer is None:
        return list(items), []
    allowed: list[Item] = []
    refused: list[Item] = []
    for item in items:
        (allowed if may(node, call, right, get_name(item)) else refused).append(item)
    return allowed, refused


def list_operations(node: Node, call: Call[Any], resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
    """The operations on a resource that the client may do, as bits."""
    if node.authorizer is None:
        return ALL_OPERATIONS[resource_type]
    return node.authorizer.list_operations(call.client, resource_type, name)


def list_cluster_operations(node: Node, call: Call[Any]) -> int:
    """Like `list_operations`, but a client that may not even describe the cluster sees none, as in Kafka."""
    if not may(node, call, rights.DESCRIBE_CLUSTER):
        return 0
    return list_operations(node, call, ResourceType.CLUSTER)


async def _check_when_done(node: Node, call: Call[Any], right: Right, name: str, answer: Any) -> Any:
    found = await answer
    require(node, call, right, name)
    return found


def check_again(node: Node, call: Call[Any], right: Right, name: str, answer: Item) -> Item:
    """The answer; if it has to be waited for, the right is checked again afterwards: it may be gone by then."""
    return _check_when_done(node, call, right, name, answer) if iscoroutine(answer) else answer  # type: ignore[return-value]


def build_sight(node: Node, call: Call[Any]) -> Sight | None:
    """Which topics the client may know of: those that it may describe. None: all."""
    authorizer, client = node.authorizer, call.client
    if authorizer is None:
        return None
    return lambda name: authorizer.allows(client, rights.DESCRIBE_TOPIC, name)
