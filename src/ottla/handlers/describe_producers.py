"""DescribeProducers: the producer states of a partition: idempotent and transactional, idle ones too (KIP-664).

Followers answer too: with a broker id, `kafka-transactions find-hanging` asks for every replica of that broker.
Versions: 0.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.topics import check_name
from ottla.errors import KafkaError
from ottla.handlers.authorization import require
from ottla.replication.partition import Partition
from ottla.security import rights
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

REQUIRES = rights.parts(rights.READ_TOPIC)


def handle(node: Node, call: Call[DescribeProducersRequest]) -> DescribeProducersResponse:
    topics = []
    for topic in call.body.topics:
        try:
            check_name(topic.name)
            require(node, call, rights.READ_TOPIC, topic.name)
            partitions = [describe(node, topic.name, index) for index in topic.partition_indexes]
        except KafkaError as error:
            partitions = [refuse(index, error) for index in topic.partition_indexes]
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def refuse(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message or None)


def describe(node: Node, topic: str, index: int) -> PartitionResponse:
    try:
        partition = find(node, topic, index)
    except KafkaError as error:
        return refuse(index, error)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start,
            )
            for producer in partition.log.producers.producers.values()
        ],
    )


def find(node: Node, topic: str, index: int) -> Partition:
    try:
        return node.replicas.get(topic, index)
    except KafkaError as error:
        raise KafkaError(error.code, f"this broker has no partition {topic}-{index}") from None
