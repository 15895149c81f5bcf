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


Found = OffsetFetchResponseGroup | Coroutine[Any, Any, OffsetFetchResponseGroup]


def handle(
    node: Node, call: Call[OffsetFetchRequest]
) -> OffsetFetchResponse | Coroutine[Any, Any, OffsetFetchResponse]:
    """Returns the response at once if it can, which is nearly always so for one group; otherwise a coroutine."""
    if len(call.body.groups) != 1:
        return fetch_all(node, call)
    (group,) = call.body.groups
    try:
        found = fetch(node, call, group)
    except KafkaError as error:
        return OffsetFetchResponse(groups=[refuse(group, error.code, call.version)])
    if isinstance(found, OffsetFetchResponseGroup):
        return OffsetFetchResponse(groups=[found])
    return fetch_one(OwnedCoroutine(found), group, call.version)


async def fetch_all(node: Node, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    found = []
    for group in call.body.groups:
        try:
            answer = fetch(node, call, group)
            found.append(answer if isinstance(answer, OffsetFetchResponseGroup) else await answer)
        except KafkaError as error:
            found.append(refuse(group, error.code, call.version))
    return OffsetFetchResponse(groups=found)


async def fetch_one(answer: OwnedCoroutine, group: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponse:
    try:
        return OffsetFetchResponse(groups=[await answer.coroutine])
    except KafkaError as error:
        return OffsetFetchResponse(groups=[refuse(group, error.code, version)])


def fetch(node: Node, call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup) -> Found:
    """Read the offsets of one group, if the client may see it: those of the topics that it may see."""
    stable = call.body.require_stable
    if node.authorizer is None:
        return node.groups.fetch_offsets(group, version=call.version, require_stable=stable)
    require(node, call, rights.DESCRIBE_GROUP, group.group_id)
    everything, refused = group.topics is None, take_out_forbidden(node, call, group)
    answer = node.groups.fetch_offsets(group, version=call.version, require_stable=stable)
    if not (everything or refused):
        return answer
    if isinstance(answer, OffsetFetchResponseGroup):
        return show_allowed(node, call, answer, everything, refused)
    return show_when_read(node, call, OwnedCoroutine(answer), everything, refused)


def take_out_forbidden(
    node: Node, call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> list[OffsetFetchRequestTopics]:
    """Remove the topics that the client may not see from the request, and return them. An id that no topic has stays in
    it: it is answered as unknown."""
    image, by_id = node.image, call.version >= TOPIC_IDS_FROM
    allowed: list[OffsetFetchRequestTopics] = []
    refused: list[OffsetFetchRequestTopics] = []
    for topic in group.topics or ():
        name = image.topic_names.get(topic.topic_id) if by_id else topic.name
        (allowed if name is None or may(node, call, rights.DESCRIBE_TOPIC, name) else refused).append(topic)
    if refused:
        group.topics = allowed
    return refused


async def show_when_read(
    node: Node,
    call: Call[OffsetFetchRequest],
    answer: OwnedCoroutine,
    everything: bool,
    refused: list[OffsetFetchRequestTopics],
) -> OffsetFetchResponseGroup:
    return show_allowed(node, call, await answer.coroutine, everything, refused)


def show_allowed(
    node: Node,
    call: Call[OffsetFetchRequest],
    response: OffsetFetchResponseGroup,
    everything: bool,
    refused: list[OffsetFetchRequestTopics],
) -> OffsetFetchResponseGroup:
    """Leave out what the client may not see, if it has asked for all topics, or add what it was refused."""
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
