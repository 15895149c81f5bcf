"""DeleteAcls: remove the ACLs that filters match. The answer has the removed ones, filter by filter.

Versions: 2 flexible; 3 user resources.
"""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.acls import delete_acls
from ottla.errors import KafkaError
from ottla.handlers.acl_messages import read_filter, require_authorizer
from ottla.handlers.deadlines import Deadline
from ottla.security import rights
from ottla.security.acls import Acl, AclFilter
from ottla.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

REQUIRES = rights.whole(rights.ALTER_CLUSTER)


async def handle(node: Node, call: Call[DeleteAclsRequest]) -> DeleteAclsResponse:
    require_authorizer(node, "No Authorizer is configured.")
    results = [DeleteAclsFilterResult() for _ in call.body.filters]
    readable: list[tuple[AclFilter, DeleteAclsFilterResult]] = []
    for asked, result in zip(call.body.filters, results, strict=True):
        try:
            readable.append((read_filter(asked), result))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    decide = partial(delete_acls, filters=[each for each, _ in readable])
    deleted = await node.metadata.change(decide, Deadline(node).left_s())
    for (_, result), acls in zip(readable, deleted, strict=True):
        result.matching_acls = [describe(acl) for acl in acls]
    return DeleteAclsResponse(filter_results=results)


def describe(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
