"""DescribeAcls: the ACLs that a filter matches, by resource pattern.

Versions: 2 flexible; 3 user resources.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.handlers.acl_messages import read_filter, require_authorizer
from ottla.security import rights
from ottla.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

REQUIRES = rights.whole(rights.DESCRIBE_CLUSTER)


async def handle(node: Node, call: Call[DescribeAclsRequest]) -> DescribeAclsResponse:
    require_authorizer(node, "No Authorizer is configured on the broker")
    wanted = read_filter(call.body)
    if node.catch_up is not None:
        await node.catch_up()  # who creates an ACL at one broker sees it at all others
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    for acl in node.image.acls.select(wanted):
        resource = resources.get(acl.pattern)
        if resource is None:
            resource = resources[acl.pattern] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))
