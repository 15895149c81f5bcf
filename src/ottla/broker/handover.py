"""A broker that is about to stop goes on serving until the others name the leaders that took over from it.

If it closed its connections at once, its clients would ask another broker for the new leaders, and get the old ones if
that broker has not replayed the handover yet. librdkafka was seen to send nothing for 1.4 to 1.8 s then. Kafka's
controller waits for the metadata of all brokers too before it lets one stop.

After that the broker serves for a moment longer. Who sends or fetches meanwhile learns the new leader from the answer
(KIP-951), and has moved before the connection is closed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice

from ottla.broker.isolation import SAMPLE, ask_metadata
from ottla.cluster.image import Image
from ottla.replication.peers import Peers
from ottla.topic_partition import TopicIdPartition
from ottla.wire.messages.metadata import MetadataResponse

POLL_S = 0.01
"""Pause before a broker is asked again that has not replayed the handover yet."""

PATIENCE_S = 1.0
"""How long others are waited for. One that takes longer may be paused."""

MOVING_S = 0.2
"""How long clients have time to move to the new leaders."""


def list_led(image: Image, broker_id: int) -> list[TopicIdPartition]:
    """The partitions that the broker leads."""
    return [
        (topic.id, index)
        for topic in image.topics()
        for index, state in enumerate(topic.partitions)
        if state.leader == broker_id
    ]


def can_be_taken_over(image: Image, broker_id: int) -> bool:
    """Whether the broker leads a partition with a replica on another broker that serves."""
    return any(
        state.leader == broker_id and any(image.serves(each) for each in state.replicas if each != broker_id)
        for topic in image.topics()
        for state in topic.partitions
    )


async def let_others_know(broker_id: int, image: Image, led: Iterable[TopicIdPartition], peers: Peers) -> None:
    """Wait until other brokers and active clients know who leads what this broker has `led`."""
    epochs = dict(islice(_list_handed_over(broker_id, image, led), SAMPLE))
    if not epochs:
        return
    others = [broker.id for broker in image.alive_brokers() if broker.id != broker_id]
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(_wait_for(other, epochs, peers) for other in others))
    await asyncio.sleep(MOVING_S)


def _list_handed_over(
    broker_id: int, image: Image, led: Iterable[TopicIdPartition]
) -> Iterable[tuple[TopicIdPartition, int]]:
    """The partitions that another broker leads now, with their leader epochs."""
    for topic_id, index in led:
        topic = image.topic_by_id(topic_id)
        if topic is not None and topic.partitions[index].leader not in (broker_id, -1):
            yield (topic_id, index), topic.partitions[index].leader_epoch


async def _wait_for(other: int, epochs: Mapping[TopicIdPartition, int], peers: Peers) -> None:
    """Wait until the other broker has replayed these leader epochs. One that does not answer can mislead nobody."""
    topic_ids = {topic_id for topic_id, _ in epochs}
    while (answer := await ask_metadata(peers, other, topic_ids)) is not None and _is_outdated(answer, epochs):
        await asyncio.sleep(POLL_S)


def _is_outdated(answer: MetadataResponse, epochs: Mapping[TopicIdPartition, int]) -> bool:
    return any(
        partition.leader_epoch < epochs.get((topic.topic_id, partition.partition_index), -1)
        for topic in answer.topics
        for partition in topic.partitions
    )
