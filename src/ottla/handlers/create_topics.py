"""CreateTopics: create topics, each independently, in as few metadata entries as possible.

A created topic is in Metadata before the answer is sent.

Versions: 4 default partition count and replication factor; 5 flexible, the created topic's settings (KIP-525);
6 THROTTLING_QUOTA_EXCEEDED (KIP-599); 7 topic ids.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.topics import CreatedTopic, NewTopic, create_topic, create_topics
from ottla.config.description import TopicDescriptions
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may
from ottla.handlers.deadlines import Deadline
from ottla.handlers.mutations import MutationQuota
from ottla.security import rights
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STRICT_FROM = 6
REQUIRES = rights.parts(rights.CREATE_CLUSTER, rights.CREATE_TOPIC, rights.DESCRIBE_CONFIGS_OF_TOPIC)


async def handle(node: Node, call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    request = call.body
    named = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    wanted: list[NewTopic] = []
    deadline = Deadline(node, request.timeout_ms)
    quota = MutationQuota(node, call, STRICT_FROM)
    if node.catch_up is not None and (request.validate_only or quota.is_active):
        await node.catch_up()  # both are decided by the image of this broker
    may_create_all = may(node, call, rights.CREATE_CLUSTER, silent=True)
    for asked in request.topics:
        try:
            if named[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            if not (may_create_all or may(node, call, rights.CREATE_TOPIC, asked.name)):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            topic = read_topic(asked)
            if quota.is_active:
                quota.take(create_topic(node.image, topic, node.config, node.random).result.partitions)
            wanted.append(topic)
            results[asked.name] = CreatableTopicResult(name=asked.name)
        except KafkaError as error:
            results[asked.name] = build_error_result(asked.name, error)
    descriptions = TopicDescriptions(node.config)
    while wanted:
        created = await create(node, wanted, request.validate_only, deadline)
        for topic, result in zip(wanted, created, strict=False):
            results[topic.name] = build_result(node, call, descriptions, topic.name, result)
        wanted = wanted[len(created) :]
    await node.replication.reconciliation.wait_until_created()
    response = CreateTopicsResponse(topics=list(results.values()))
    quota.settle(response)
    return response


def read_topic(asked: CreatableTopic) -> NewTopic:
    topic = NewTopic(
        name=asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments={item.partition_index: tuple(item.broker_ids) for item in asked.assignments},
        configs={item.name: item.value for item in asked.configs},
    )
    if len(topic.assignments) != len(asked.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    if len(topic.configs) != len(asked.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting is given more than once")
    return topic


async def create(
    node: Node, wanted: Sequence[NewTopic], validate_only: bool, deadline: Deadline
) -> list[CreatedTopic | KafkaError]:
    """Create the first of these topics, as many as fit one metadata entry."""
    decide = partial(create_topics, topics=wanted, config=node.config, random=node.random)
    try:
        return decide(node.image).result if validate_only else await node.metadata.change(decide, deadline.left_s())
    except KafkaError as error:  # the metadata could not be written
        return [error] * len(wanted)


def build_result(
    node: Node,
    call: Call[CreateTopicsRequest],
    descriptions: TopicDescriptions,
    name: str,
    created: CreatedTopic | KafkaError,
) -> CreatableTopicResult:
    if isinstance(created, KafkaError):
        return build_error_result(name, created)
    if not may(node, call, rights.DESCRIBE_CONFIGS_OF_TOPIC, name, silent=True):
        return CreatableTopicResult(
            name=name, topic_id=created.topic_id, topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
    return CreatableTopicResult(
        name=name,
        topic_id=created.topic_id,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(name=setting.name, value=setting.value, config_source=setting.origin)
            for setting in descriptions.of(created.configs)
        ],
    )


def build_error_result(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message or None, topic_config_error_code=0, configs=[]
    )
