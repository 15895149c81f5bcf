"""ACLs and filters as the protocol has them: what CreateAcls, DeleteAcls and DescribeAcls share."""

from enum import IntEnum
from typing import TypeVar

from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import Acl, AclFilter
from ottla.security.operations import Operation, PatternType, Permission, ResourceType
from ottla.wire.messages.create_acls import AclCreation
from ottla.wire.messages.delete_acls import DeleteAclsFilter
from ottla.wire.messages.describe_acls import DescribeAclsRequest

Choice = TypeVar("Choice", bound=IntEnum)


def require_authorizer(node: Node, message: str) -> None:
    if node.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, message)


def read_acl(asked: AclCreation) -> Acl:
    return Acl(
        read_number(ResourceType, asked.resource_type, "resource type"),
        asked.resource_name,
        read_number(PatternType, asked.resource_pattern_type, "pattern type"),
        asked.principal,
        asked.host,
        read_number(Operation, asked.operation, "operation"),
        read_number(Permission, asked.permission_type, "permission type"),
    )


def read_filter(asked: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    return AclFilter(
        read_number(ResourceType, asked.resource_type_filter, "resource type"),
        asked.resource_name_filter,
        read_number(PatternType, asked.pattern_type_filter, "pattern type"),
        asked.principal_filter,
        asked.host_filter,
        read_number(Operation, asked.operation, "operation"),
        read_number(Permission, asked.permission_type, "permission type"),
    )


def read_number(kind: type[Choice], number: int, what: str) -> Choice:
    try:
        return kind(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no {what} {number}") from None
