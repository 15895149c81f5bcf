"""OffsetCommit: store the offsets up to which a group has read.

Versions: 2 retention time, for all partitions; 3 throttle time; 5 no retention time (KIP-211); 6 leader epoch
(KIP-320); 7 static members (KIP-345); 8 flexible; 9 consumer groups (KIP-848); 10 topic ids (KIP-848).
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse

VERSIONS = range(2, 11)


TOPIC_IDS_FROM = 10


def handle(
    node: Node, call: Call[OffsetCommitRequest]
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    if node.catch_up is not None and any(is_unknown(node, call.version, topic) for topic in call.body.topics):
        return commit_after_catching_up(node, node.catch_up, call)
    return node.groups.commit_offsets(call.body, version=call.version)


def is_unknown(node: Node, version: int, topic: OffsetCommitRequestTopic) -> bool:
    image = node.image
    found = image.topic_by_id(topic.topic_id) if version >= TOPIC_IDS_FROM else image.topic(topic.name)
    return found is None


async def commit_after_catching_up(
    node: Node, catch_up: Callable[[], Awaitable[None]], call: Call[OffsetCommitRequest]
) -> OffsetCommitResponse:
    """A topic that another broker has created is known here a moment later: look before denying it."""
    await catch_up()
    answer = node.groups.commit_offsets(call.body, version=call.version)
    return answer if isinstance(answer, OffsetCommitResponse) else await answer
