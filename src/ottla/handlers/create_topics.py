"""CreateTopics: create topics, each independently. A created topic is in Metadata before the answer is sent.

Versions: 4 default partition count and replication factor; 5 flexible, the created topic's settings (KIP-525);
7 topic ids.
"""

from collections import Counter
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config.description import TopicDescriptions
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

VERSIONS = range(2, 8)


async def handle(node: Node, call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    request = call.body
    named = Counter(topic.name for topic in request.topics)
    results = {}
    for topic in request.topics:
        if named[topic.name] == 1:
            results[topic.name] = await create(node, topic, request.validate_only)
        else:
            results[topic.name] = build_error_result(
                topic.name, KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            )
    await node.replication.reconciliation.wait_until_created()
    return CreateTopicsResponse(topics=list(results.values()))


async def create(node: Node, asked: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    topic = NewTopic(
        name=asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments={item.partition_index: tuple(item.broker_ids) for item in asked.assignments},
        configs={item.name: item.value for item in asked.configs},
    )
    try:
        if len(topic.assignments) != len(asked.assignments):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
        if len(topic.configs) != len(asked.configs):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting is given more than once")
        decide = partial(create_topic, topic=topic, config=node.config, random=node.random)
        created = decide(node.image).result if validate_only else await node.metadata.change(decide)
    except KafkaError as error:
        return build_error_result(asked.name, error)
    return CreatableTopicResult(
        name=asked.name,
        topic_id=created.topic_id,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(name=setting.name, value=setting.value, config_source=setting.source)
            for setting in TopicDescriptions(node.config).of(created.configs)
        ],
    )


def build_error_result(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.message or None, topic_config_error_code=0, configs=[]
    )
