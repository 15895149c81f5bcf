"""Creates topics in a simulation: the request is repeated until the broker says that the topic exists."""

import asyncio
from collections.abc import Mapping
from random import Random

from ottla.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.channel import Channel
from tests.simulation.world import Machine

HOST = "admin"
CREATED_LATER = (
    ErrorCode.NONE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.NOT_CONTROLLER,
)
"""What a broker, or a cluster in which brokers are missing, may answer before it creates the topic."""


async def create_topic(
    machine: Machine, name: str, partitions: int, settings: Mapping[str, str], random: Random, replicas: int = 1
) -> bytes:
    """Create a topic. Returns its id."""
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)
    while True:
        try:
            channel = await Channel.open(HOST, machine)
        except OSError:
            await asyncio.sleep(random.uniform(0.01, 0.5))
            continue
        topic_id = await _ask(channel, topic)
        channel.close()
        if topic_id is not None:
            machine.world.note(HOST, f"{name} is {topic_id.hex()}")
            return topic_id
        await asyncio.sleep(random.uniform(0.01, 0.5))


async def _ask(channel: Channel, topic: CreatableTopic) -> bytes | None:
    response = await channel.call(CreateTopicsRequest(topics=[topic]), 7)
    if response is None:
        return None
    code = response.topics[0].error_code
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:  # created by an attempt whose answer was lost
        return await find_topic(channel, topic.name)
    assert code in CREATED_LATER, f"{topic.name}: {ErrorCode(code).name}"
    return None if code else bytes(response.topics[0].topic_id)


async def find_topic(channel: Channel, name: str) -> bytes | None:
    """Find the id of a topic that exists. None if the broker did not answer."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    response = await channel.call(request, 12)
    if response is None:
        return None
    (found,) = response.topics
    assert not found.error_code, f"{name} was created and is gone: {ErrorCode(found.error_code).name}"
    return bytes(found.topic_id)
