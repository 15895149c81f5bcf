"""Metadata: the brokers, and for each topic its partitions and their leaders.

Versions: 0 an empty list means all topics; 1 null does, controller id, racks; 2 cluster id; 4 the client may forbid
auto-creation; 5 offline replicas; 7 leader epochs; 8 authorized operations; 9 flexible; 10 topic ids; 12 topics by id;
13 a code for the whole answer.
"""

from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from ottla.addresses import advertised
from ottla.call import Call, Client
from ottla.cluster.changes import NO_LEADER
from ottla.cluster.image import BrokerImage, Image, TopicImage
from ottla.cluster.topics import NewTopic, check_name, create_topic, is_internal
from ottla.errors import ErrorCode, KafkaError
from ottla.node import Node
from ottla.security import operations
from ottla.wire.message import ZERO_UUID
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSIONS = range(0, 14)


def handle(node: Node, call: Call[MetadataRequest]) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """A plain function, since the answer is nearly always ready: only auto-creation has to wait."""
    missing = creatable(node, call)
    return create_and_answer(node, call, missing) if missing else answer(node, call)


def creatable(node: Node, call: Call[MetadataRequest]) -> list[str]:
    """Topics to auto-create: those that are asked for by name and do not exist."""
    if not (node.config.auto_create_topics_enable and (call.version < 4 or call.body.allow_auto_topic_creation)):
        return []
    asked = (topic.name for topic in call.body.topics or ())
    return list(dict.fromkeys(name for name in asked if name and node.image.topic(name) is None))


async def create_and_answer(node: Node, call: Call[MetadataRequest], names: list[str]) -> MetadataResponse:
    """A name that cannot be created is left missing."""
    for name in names:
        decide = partial(create_topic, topic=NewTopic(name), config=node.config, random=node.random)
        with suppress(KafkaError):
            await node.metadata.change(decide)
    return answer(node, call)


def answer(node: Node, call: Call[MetadataRequest]) -> MetadataResponse:
    request, image = call.body, node.image
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [describe(image, topic) for topic in image.topics()]
    else:
        topics = [find(image, asked, call.version) for asked in request.topics]
    response = MetadataResponse(
        brokers=[describe_broker(broker, call.client) for broker in image.alive_brokers()],
        cluster_id=image.cluster_id,
        controller_id=image.controller.broker_id if image.controller is not None else -1,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations.ON_CLUSTER
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = operations.ON_TOPIC
    return response


def describe_broker(broker: BrokerImage, client: Client) -> MetadataResponseBroker:
    endpoint = advertised(broker, client)
    return MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)


def find(image: Image, asked: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    by_id_only = asked.name is None
    if asked.topic_id != ZERO_UUID and (version < 12 or not by_id_only):
        # The field came in version 10, its meaning in version 12; and one of name and id must do.
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
        )
    if asked.name is None:
        by_id = image.topic_by_id(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=asked.topic_id)
        return describe(image, by_id)
    topic = image.topic(asked.name)
    if topic is not None:
        return describe(image, topic)
    try:
        check_name(asked.name)
    except KafkaError as error:
        return MetadataResponseTopic(error_code=error.code, name=asked.name)
    return MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=asked.name, is_internal=is_internal(asked.name)
    )


def describe(image: Image, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=[broker for broker in partition.replicas if image.brokers[broker].fenced],
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )
