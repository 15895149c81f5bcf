"""OffsetFetch: read the committed offsets of one or several groups.

Versions: 1 offsets stored by the broker; 2 all partitions of a group, an error for the group; 3 throttle time; 5 leader
epoch; 6 flexible; 7 a choice of stable offsets only (KIP-447); 8 many groups at once (KIP-709); 9 member id and epoch
(KIP-848); 10 topic ids.
"""

from collections.abc import Coroutine
from typing import Any

from ottla.broker.call import Call, OwnedCoroutine
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may, require
from ottla.security import rights
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

REQUIRES = rights.parts(rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC)

TOPIC_IDS_FROM = 10


def handle(
    node: Node, call: Call[OffsetFetchRequest]
) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    """Returns the response at once if it can, which is nearly always so for one group; otherwise a coroutine."""
    request = call.body
    if node.authorizer is not None and not may_fetch_all(node, call):
        return fetch_allowed(node, call)
    if len(request.groups) != 1:
        return fetch_all(node, request, call.version)
    (group,) = request.groups
    try:
        found = node.groups.fetch_offsets(group, version=call.version, require_stable=request.require_stable)
    except KafkaError as error:
        return OffsetFetchResponse(groups=[refuse(group, error.code, call.version)])
    if isinstance(found, OffsetFetchResponseGroup):
        return OffsetFetchResponse(groups=[found])
    return fetch_one(OwnedCoroutine(found), group, call.version)


def may_fetch_all(node: Node, call: Call[OffsetFetchRequest]) -> bool:
    """Whether the client asks for named topics, all of which it may see: then nothing of the answer is left out."""
    by_id, names = call.version >= TOPIC_IDS_FROM, node.image.topic_names
    for group in call.body.groups:
        if group.topics is None or not may(node, call, rights.DESCRIBE_GROUP, group.group_id, silent=True):
            return False
        for topic in group.topics:
            name = names.get(topic.topic_id) if by_id else topic.name
            if name is not None and not may(node, call, rights.DESCRIBE_TOPIC, name, silent=True):
                return False
    return True


async def fetch_all(node: Node, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    found = []
    for group in request.groups:
        try:
            answer = node.groups.fetch_offsets(group, version=version, require_stable=request.require_stable)
            found.append(answer if isinstance(answer, OffsetFetchResponseGroup) else await answer)
        except KafkaError as error:
            found.append(refuse(group, error.code, version))
    return OffsetFetchResponse(groups=found)


async def fetch_one(answer: OwnedCoroutine, group: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponse:
    try:
        return OffsetFetchResponse(groups=[await answer.coroutine])
    except KafkaError as error:
        return OffsetFetchResponse(groups=[refuse(group, error.code, version)])


async def fetch_allowed(node: Node, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Read the offsets of each group and topic that the client may see."""
    found = []
    for group in call.body.groups:
        try:
            require(node, call, rights.DESCRIBE_GROUP, group.group_id)
            found.append(await fetch_group(node, call, group))
        except KafkaError as error:
            found.append(refuse(group, error.code, call.version))
    return OffsetFetchResponse(groups=found)


async def fetch_group(
    node: Node, call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    image, by_id = node.image, call.version >= TOPIC_IDS_FROM
    everything = group.topics is None
    refused: list[OffsetFetchRequestTopics] = []
    if group.topics is not None:
        allowed: list[OffsetFetchRequestTopics] = []
        for topic in group.topics:
            name = image.topic_names.get(topic.topic_id) if by_id else topic.name
            (allowed if name is None or may(node, call, rights.DESCRIBE_TOPIC, name) else refused).append(topic)
        group.topics = allowed
    answer = node.groups.fetch_offsets(group, version=call.version, require_stable=call.body.require_stable)
    response = answer if isinstance(answer, OffsetFetchResponseGroup) else await answer
    if everything:
        response.topics = [
            topic for topic in response.topics if may(node, call, rights.DESCRIBE_TOPIC, topic.name, silent=True)
        ]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in refused:
        results = [
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=code)
            for index in topic.partition_indexes
        ]
        answered = OffsetFetchResponseTopics(topic_id=topic.topic_id, name=topic.name, partitions=results)
        response.topics.append(answered)
    return response


def refuse(request: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """The response for a group that failed. Version 1 has no error for the group: every partition carries it."""
    topics = []
    if version < 2:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code, topics=topics)
