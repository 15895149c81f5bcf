"""DescribeAcls: which rules say who may do what. This broker has no authorizer, so there are none to list.

Versions: 2 flexible; 3 user resources.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

VERSIONS = range(1, 4)


def handle(node: Node, call: Call[DescribeAclsRequest]) -> DescribeAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
