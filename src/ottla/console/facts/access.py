"""ACLs, users with SCRAM credentials, and quotas. A cluster without one of these answers why."""

from typing import NamedTuple

from ottla.client.client import Client
from ottla.console.facts.settings import raise_for_code
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

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
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


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


class User(NamedTuple):
    name: str
    credentials: list[tuple[str, int]]
    """Mechanism and iterations."""


class Quota(NamedTuple):
    entity: list[tuple[str, str]]
    """Kind and name, such as user and alice; an empty name is the default."""
    values: dict[str, float]


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


def list_users(client: Client) -> list[User]:
    answer = client.ask_any(DescribeUserScramCredentialsRequest(users=None))
    raise_for_code(answer.error_code, answer.error_message, "users")
    return [
        User(
            each.user,
            [(MECHANISMS.get(info.mechanism, str(info.mechanism)), info.iterations) for info in each.credential_infos],
        )
        for each in sorted(answer.results, key=lambda each: each.user)
    ]


def list_quotas(client: Client) -> list[Quota]:
    answer = client.ask_any(DescribeClientQuotasRequest(components=[], strict=False))
    raise_for_code(answer.error_code, answer.error_message, "quotas")
    return sorted(
        Quota(
            [(part.entity_type, part.entity_name or "") for part in each.entity],
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or ()
    )
