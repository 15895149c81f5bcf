"""A leader that cannot reach the store asks the other brokers whether it still leads.

Nothing else tells it. Its session has expired in ZooKeeper, the others have fenced it and elected new leaders, but a
session that has no connection learns of its end only when it is connected again. Meanwhile producers with acks=all
would wait for followers that fetch from somebody else, and get REQUEST_TIMED_OUT, on which clients try the same leader
again without a look at the metadata.
"""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice

from ottla.cluster.image import Image
from ottla.errors import KafkaError
from ottla.replication.partition import Partition
from ottla.replication.peers import Peers, PeerUnavailable
from ottla.topic_partition import TopicIdPartition
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

ANSWER_TIMEOUT_S = 5.0

SAMPLE = 10
"""How many partitions other brokers are asked about. A fenced broker leads none, so one partition would be enough, but
its topic may have been deleted in the meantime."""


async def was_fenced(broker_id: int, image: Image, partitions: Iterable[Partition], peers: Peers) -> bool:
    """Whether another broker has replayed that this one was fenced after `image`."""
    led = {
        (partition.topic_id, partition.index): partition.leader_epoch
        for partition in islice((each for each in partitions if each.is_leader), SAMPLE)
    }
    others = [broker.id for broker in image.alive_brokers() if broker.id != broker_id]
    if not led or not others:
        return False
    topic_ids = {topic_id for topic_id, _ in led}
    answers = await asyncio.gather(*(ask_metadata(peers, other, topic_ids) for other in others))
    return any(answer is not None and _says_fenced(broker_id, led, answer) for answer in answers)


async def ask_metadata(peers: Peers, broker_id: int, topic_ids: Iterable[bytes]) -> MetadataResponse | None:
    """What another broker says about topics; None if it does not answer."""
    topics = [MetadataRequestTopic(topic_id=topic_id) for topic_id in sorted(topic_ids)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    try:
        answer: MetadataResponse = await peers.request(broker_id, request, timeout_s=ANSWER_TIMEOUT_S)
    except (PeerUnavailable, KafkaError):
        return None
    return answer


def _says_fenced(broker_id: int, led: Mapping[TopicIdPartition, int], answer: MetadataResponse) -> bool:
    """Whether the answer is from newer metadata, in which this broker does not serve.

    A broker that has itself lost the store may answer from metadata in which this one has not yet registered. Newer
    metadata has a higher leader epoch of a partition that this broker leads. The list of brokers shows for a while also
    those that were fenced; their replicas are offline at once.
    """
    is_listed = any(broker.node_id == broker_id for broker in answer.brokers)
    return any(
        partition.leader_epoch > led.get((topic.topic_id, partition.partition_index), partition.leader_epoch)
        and (not is_listed or broker_id in partition.offline_replicas)
        for topic in answer.topics
        for partition in topic.partitions
    )
