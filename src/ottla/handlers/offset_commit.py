"""OffsetCommit: store the offsets up to which a group has read.

Versions: 2 retention time, for all partitions; 3 throttle time; 5 no retention time (KIP-211); 6 leader epoch
(KIP-320); 7 static members (KIP-345); 8 flexible; 9 consumer groups (KIP-848); 10 topic ids (KIP-848).
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.handlers.authorization import may, require
from ottla.security import rights
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

REQUIRES = rights.parts(rights.READ_GROUP, rights.READ_TOPIC)


TOPIC_IDS_FROM = 10


def handle(
    node: Node, call: Call[OffsetCommitRequest]
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    refused: list[OffsetCommitRequestTopic] = []
    if node.authorizer is not None:
        refused = take_out_forbidden(node, call)
    if node.catch_up is not None and any(is_unknown(node, call.version, topic) for topic in call.body.topics):
        return commit_after_catching_up(node, node.catch_up, call, refused)
    if refused:
        return commit_rest(node, call, refused)
    return node.groups.commit_offsets(call.body, version=call.version)


def take_out_forbidden(node: Node, call: Call[OffsetCommitRequest]) -> list[OffsetCommitRequestTopic]:
    """Remove the topics that the client may not read from the request, and return them. An id that no topic has stays
    in it: it is answered as unknown."""
    require(node, call, rights.READ_GROUP, call.body.group_id)
    image, by_id = node.image, call.version >= TOPIC_IDS_FROM
    allowed: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitRequestTopic] = []
    for topic in call.body.topics:
        name = image.topic_names.get(topic.topic_id) if by_id else topic.name
        (allowed if name is None or may(node, call, rights.READ_TOPIC, name) else refused).append(topic)
    if refused:
        call.body.topics = allowed
    return refused


def is_unknown(node: Node, version: int, topic: OffsetCommitRequestTopic) -> bool:
    image = node.image
    found = image.topic_by_id(topic.topic_id) if version >= TOPIC_IDS_FROM else image.topic(topic.name)
    return found is None


async def commit_after_catching_up(
    node: Node,
    catch_up: Callable[[], Awaitable[None]],
    call: Call[OffsetCommitRequest],
    refused: list[OffsetCommitRequestTopic],
) -> OffsetCommitResponse:
    """A topic that another broker has created is known here a moment later: look before denying it."""
    await catch_up()
    if node.authorizer is not None:
        refused = [*refused, *take_out_forbidden(node, call)]
    return await commit_rest(node, call, refused)


async def commit_rest(
    node: Node, call: Call[OffsetCommitRequest], refused: list[OffsetCommitRequestTopic]
) -> OffsetCommitResponse:
    """Commit the offsets of the topics that are left in the request, and add the others to the answer."""
    response = OffsetCommitResponse()
    if call.body.topics or not refused:
        answer = node.groups.commit_offsets(call.body, version=call.version)
        response = answer if isinstance(answer, OffsetCommitResponse) else await answer
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in refused:
        results = [
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ]
        answered = OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=results)
        response.topics.append(answered)
    return response
