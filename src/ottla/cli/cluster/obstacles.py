"""Which brokers cannot change the metadata, because ZooKeeper is away for them.

Topics are written and read as before then, so nothing else shows it. But no leader can be elected: a broker that is
stopped leaves its partitions without one.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from ottla.cli.cluster.asking import ask_each_soon
from ottla.cli.cluster.overview import Overview, name_brokers

if TYPE_CHECKING:
    from ottla.client.client import Client

METADATA_TOPIC = "__cluster_metadata"


def mark_obstacles(own: "Client", overview: Overview) -> Overview:
    """The overview with what keeps brokers from changing the metadata.

    Brokers that do not answer, are older than the request, or do not allow it, count as able.
    """
    from ottla.errors import ErrorCode
    from ottla.wire.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumRequestPartitionData,
        DescribeQuorumRequestTopicData,
    )

    asked = [DescribeQuorumRequestPartitionData(partition_index=0)]
    request = DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=asked)]
    )
    obstacles: dict[int, str] = {}
    for broker, answer in ask_each_soon(own, (broker.id for broker in overview.alive()), request).items():
        for partition in (each for topic in answer.topics for each in topic.partitions):
            if partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
                obstacles[broker] = partition.error_message or "no controller"
    return overview._replace(brokers=[each._replace(obstacle=obstacles.get(each.id)) for each in overview.brokers])


def explain_obstacles(overview: Overview) -> list[str]:
    """One sentence for each obstacle, with the brokers that have it."""
    brokers: defaultdict[str, list[int]] = defaultdict(list)
    for broker in overview.brokers:
        if broker.obstacle is not None:
            brokers[broker.obstacle].append(broker.id)
    return [f"{name_brokers(ids)}: {obstacle}" for obstacle, ids in brokers.items()]
