"""What brokers say of their data directories: which brokers are cordoned, and how much of a partition each one has."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.cli.cluster.asking import ask_each_soon
from ottla.cli.cluster.overview import Overview
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.describe_log_dirs import DescribeLogDirsResult


def mark_cordoned(own: "Client", overview: Overview) -> Overview:
    """The overview with the brokers that get no new replicas, because all their directories are cordoned (KIP-1066).

    Brokers that do not answer, or are older than the request, count as not cordoned.
    """
    found = _describe(own, (broker.id for broker in overview.alive()), ())
    cordoned = {broker for broker, there in found.items() if there and all(each.is_cordoned for each in there)}
    return overview._replace(brokers=[each._replace(cordoned=each.id in cordoned) for each in overview.brokers])


def measure_replicas(
    own: "Client", brokers: Iterable[int], partitions: Sequence[TopicPartition]
) -> dict[tuple[int, TopicPartition], int]:
    """The bytes of partitions by broker: 0 where a broker has no log. What is not known is left out."""
    sizes: dict[tuple[int, TopicPartition], int] = {}
    for broker, directories in _describe(own, brokers, partitions).items():
        if not any(directory.error_code for directory in directories):  # one that failed may have the log
            sizes |= {(broker, where): 0 for where in partitions}
        for directory in directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    where = broker, TopicPartition(topic.name, each.partition_index)
                    if not each.is_future_key:
                        sizes[where] = sizes.get(where, 0) + each.partition_size
    return sizes


def _describe(
    own: "Client", brokers: Iterable[int], partitions: Iterable[TopicPartition]
) -> dict[int, "list[DescribeLogDirsResult]"]:
    """The directories of brokers with these partitions in them; without those that do not answer soon."""
    from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

    topics: dict[str, DescribableLogDirTopic] = {}
    for name, number in partitions:
        topics.setdefault(name, DescribableLogDirTopic(topic=name)).partitions.append(number)
    request = DescribeLogDirsRequest(topics=list(topics.values()))
    answers = ask_each_soon(own, brokers, request)
    return {broker: answer.results for broker, answer in answers.items() if not answer.error_code}
