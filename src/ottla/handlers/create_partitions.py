"""CreatePartitions: add partitions to topics, each topic independently. They are in Metadata before the answer is sent.

Versions: 2 flexible; 3 THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from collections import Counter
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.partitions import create_partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import require
from ottla.handlers.deadlines import Deadline
from ottla.handlers.mutations import MutationQuota
from ottla.security import rights
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_FROM = 3
REQUIRES = rights.parts(rights.ALTER_TOPIC)


async def handle(node: Node, call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    request = call.body
    named = Counter(topic.name for topic in request.topics)
    deadline = Deadline(node, request.timeout_ms)
    quota = MutationQuota(node, call, STRICT_FROM)
    if node.catch_up is not None and (request.validate_only or quota.is_active):
        await node.catch_up()  # both are decided by the image of this broker
    results = {}
    for topic in request.topics:
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
            require(node, call, rights.ALTER_TOPIC, topic.name)
            await create(node, topic, request.validate_only, deadline, quota)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or None
    await node.replication.reconciliation.wait_until_created()
    response = CreatePartitionsResponse(results=list(results.values()))
    quota.settle(response)
    return response


async def create(
    node: Node, asked: CreatePartitionsTopic, validate_only: bool, deadline: Deadline, quota: MutationQuota
) -> None:
    decide = partial(
        create_partitions,
        name=asked.name,
        count=asked.count,
        assignments=None if asked.assignments is None else [each.broker_ids for each in asked.assignments],
        random=node.random,
    )
    if quota.is_active:
        quota.take(decide(node.image).result)
    if validate_only:
        decide(node.image)
    else:
        await node.metadata.change(decide, deadline.left_s())
