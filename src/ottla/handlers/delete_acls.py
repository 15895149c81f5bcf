"""DeleteAcls: remove rules that say who may do what. This broker has no authorizer, so every filter is refused.

Versions: 2 flexible; 3 user resources.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

VERSIONS = range(1, 4)


def handle(node: Node, call: Call[DeleteAclsRequest]) -> DeleteAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
