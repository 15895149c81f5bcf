"""DeleteTopics: by name or, from version 6, by id. A deleted topic is gone from Metadata before the answer is sent.

Versions: 4 flexible; 5 error message, THROTTLING_QUOTA_EXCEEDED (KIP-599); 6 topics by id (KIP-516). Its data is
removed in the background.
"""

from collections import Counter
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.image import TopicImage
from ottla.cluster.topics import delete_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may, refusal, require
from ottla.handlers.deadlines import Deadline
from ottla.handlers.mutations import MutationQuota
from ottla.security import rights
from ottla.wire.message import ZERO_UUID
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

STRICT_FROM = 5
REQUIRES = rights.parts(rights.DELETE_CLUSTER, rights.DELETE_TOPIC, rights.DESCRIBE_TOPIC)


async def handle(node: Node, call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    if not node.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if call.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(code, "delete.topic.enable is false")
    deadline = Deadline(node, call.body.timeout_ms)
    quota = MutationQuota(node, call, STRICT_FROM)
    if node.catch_up is not None:
        await node.catch_up()  # another broker may have created a topic a moment ago, or created it anew
    results = []
    for topic in find_all(node, call):
        if isinstance(topic, DeletableTopicResult):
            results.append(topic)
            continue
        try:
            if quota.is_active:
                quota.take(len(topic.partitions))
            await node.metadata.change(partial(delete_topic, topic_id=topic.id), deadline.left_s())
        except KafkaError as error:
            results.append(report(error, topic.name, topic.id))
        else:
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.id))
    response = DeleteTopicsResponse(responses=results)
    quota.settle(response)
    return response


def find_all(node: Node, call: Call[DeleteTopicsRequest]) -> list[TopicImage | DeletableTopicResult]:
    """The topics of the request that the client may delete, and the errors of the others.

    As in Kafka, a name or an id that is there twice is an error of its own. So is a topic that is named by its name and
    by its id, but only for a client that may delete it: others would learn which id belongs to a name.
    """
    named = Counter((topic.name, topic.topic_id) for topic in call.body.topics)
    mentions = Counter(topic.topic_id for topic in call.body.topics if topic.name is None)
    may_delete_all = may(node, call, rights.DELETE_CLUSTER, silent=True)
    found: set[bytes] = set()
    outcomes: list[TopicImage | DeletableTopicResult] = []
    for (name, topic_id), count in named.items():
        asked = DeleteTopicState(name=name, topic_id=topic_id)
        try:
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            topic = find(node, asked) if may_delete_all else find_deletable(node, call, asked)
        except KafkaError as error:
            outcomes.append(report(error, asked.name, topic_id))
            continue
        if name is not None:  # those by id are counted already, also if they are refused
            mentions[topic.id] += 1
        if topic.id not in found:
            found.add(topic.id)
            outcomes.append(topic)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic by its name and by its id")
    return [
        report(twice, outcome.name, outcome.id)
        if isinstance(outcome, TopicImage) and mentions[outcome.id] > 1
        else outcome
        for outcome in outcomes
    ]


def report(error: KafkaError, name: str | None, topic_id: bytes) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message or None
    )


def find(node: Node, asked: DeleteTopicState) -> TopicImage:
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a topic either by its name or by its id, not both")
    if asked.name is None and asked.topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "neither the name nor the id of a topic is given")
    if asked.name is None:
        topic = node.image.topic_by_id(asked.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic
    topic = node.image.topic(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def find_deletable(node: Node, call: Call[DeleteTopicsRequest], asked: DeleteTopicState) -> TopicImage:
    """The topic, if the client may delete it. A client that may not see the topic learns neither its name nor whether
    it exists. As in Kafka, it can find out whether an id exists."""
    by_id = asked.name is None
    if asked.name is not None and asked.topic_id == ZERO_UUID:
        require(node, call, rights.DESCRIBE_TOPIC, asked.name)
    topic = find(node, asked)
    if not may(node, call, rights.DELETE_TOPIC, topic.name):
        if by_id and may(node, call, rights.DESCRIBE_TOPIC, topic.name, silent=True):
            asked.name = topic.name
        raise refusal(rights.DELETE_TOPIC)
    return topic
