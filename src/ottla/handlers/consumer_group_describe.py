"""ConsumerGroupDescribe: state, epochs and members of consumer groups (KIP-848).

Versions: 1 the protocol that each member uses.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.security import operations
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

VERSIONS = range(0, 2)


async def handle(node: Node, call: Call[ConsumerGroupDescribeRequest]) -> ConsumerGroupDescribeResponse:
    groups = [await describe(node, group_id) for group_id in call.body.group_ids]
    if call.body.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = operations.ON_GROUP
    return ConsumerGroupDescribeResponse(groups=groups)


async def describe(node: Node, group_id: str) -> DescribedGroup:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return await node.groups.describe_consumer_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
