"""ACLs. A cluster without an authorizer answers that it has none."""

from typing import NamedTuple

from ottla.client.client import Client
from ottla.console.facts.settings import raise_for_code
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest

ANY = 1
RESOURCES = {2: "topic", 3: "group", 4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}
PATTERNS = {3: "literal", 4: "prefixed"}
OPERATIONS = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster action",
    10: "describe configs",
    11: "alter configs",
    12: "idempotent write",
    13: "create tokens",
    14: "describe tokens",
    15: "two-phase commit",
}
PERMISSIONS = {2: "deny", 3: "allow"}


class Acl(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    @property
    def resource(self) -> str:
        return RESOURCES.get(self.resource_type, str(self.resource_type))

    @property
    def pattern(self) -> str:
        return PATTERNS.get(self.pattern_type, str(self.pattern_type))

    @property
    def operation_name(self) -> str:
        return OPERATIONS.get(self.operation, str(self.operation))

    @property
    def permission_name(self) -> str:
        return PERMISSIONS.get(self.permission, str(self.permission))


def list_acls(client: Client) -> list[Acl]:
    answer = client.ask_any(
        DescribeAclsRequest(resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
    )
    raise_for_code(answer.error_code, answer.error_message, "ACLs")
    return sorted(
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for resource in answer.resources
        for each in resource.acls
    )


def create_acl(client: Client, acl: Acl) -> None:
    creation = AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    for each in client.ask_any(CreateAclsRequest(creations=[creation])).results:
        raise_for_code(each.error_code, each.error_message, "ACL")


def delete_acl(client: Client, acl: Acl) -> int:
    """Returns how many were deleted: 0 if somebody else was faster."""
    wanted = DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.resource_name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    count = 0
    for each in client.ask_any(DeleteAclsRequest(filters=[wanted])).filter_results:
        raise_for_code(each.error_code, each.error_message, "ACL")
        count += len(each.matching_acls)
    return count
