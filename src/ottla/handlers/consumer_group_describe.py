"""ConsumerGroupDescribe: state, epochs and members of consumer groups (KIP-848).

Versions: 1 the protocol that each member uses.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import list_operations, may, require
from ottla.security import rights
from ottla.security.operations import ResourceType
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

REQUIRES = rights.parts(rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC)


async def handle(node: Node, call: Call[ConsumerGroupDescribeRequest]) -> ConsumerGroupDescribeResponse:
    groups = [await describe(node, call, group_id) for group_id in call.body.group_ids]
    if call.body.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = list_operations(node, call, ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=groups)


async def describe(node: Node, call: Call[ConsumerGroupDescribeRequest], group_id: str) -> DescribedGroup:
    try:
        require(node, call, rights.DESCRIBE_GROUP, group_id)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = await node.groups.describe_consumer_group(group_id)
        if not may_see_topics(node, call, group):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
        return group
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def may_see_topics(node: Node, call: Call[ConsumerGroupDescribeRequest], group: DescribedGroup) -> bool:
    """Whether the client may see every topic that a member has, or will get."""
    if node.authorizer is None:
        return True
    names = {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
    return all(may(node, call, rights.DESCRIBE_TOPIC, name) for name in sorted(names))
