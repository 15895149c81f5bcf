"""CreateAcls: add ACLs, which say who may do what. An ACL that is there already is created without a change.

Versions: 2 flexible; 3 user resources.
"""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.acls import create_acls
from ottla.errors import KafkaError
from ottla.handlers.acl_messages import read_acl, require_authorizer
from ottla.handlers.deadlines import Deadline
from ottla.security import rights
from ottla.security.acls import Acl
from ottla.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

REQUIRES = rights.whole(rights.ALTER_CLUSTER)


async def handle(node: Node, call: Call[CreateAclsRequest]) -> CreateAclsResponse:
    require_authorizer(node, "No Authorizer is configured.")
    results = [AclCreationResult() for _ in call.body.creations]
    readable: list[tuple[Acl, AclCreationResult]] = []
    for asked, result in zip(call.body.creations, results, strict=True):
        try:
            readable.append((read_acl(asked), result))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    decide = partial(create_acls, acls=[acl for acl, _ in readable])
    errors = await node.metadata.change(decide, Deadline(node).left_s())
    for (_, result), refused in zip(readable, errors, strict=True):
        if refused is not None:
            result.error_code, result.error_message = refused.code, refused.message
    return CreateAclsResponse(results=results)
