"""Sizes of replicas, and the directories of brokers. A broker that does not answer is left out."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.client import Client, error_code
from ottla.client.connection import NotAuthenticated, Unreachable
from ottla.console.connections import ask_node
from ottla.console.facts.metadata import Snapshot
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


class Directory(NamedTuple):
    broker: int
    path: str
    error_code: int
    total_bytes: int
    """-1 if the broker does not say it."""
    usable_bytes: int
    log_bytes: int
    """What the replicas take."""
    replicas: int


class Copy(NamedTuple):
    """One replica of a partition on a disk."""

    broker: int
    directory: str
    bytes: int
    behind: int


class Disks(NamedTuple):
    directories: list[Directory]
    copies: dict[TopicPartition, list[Copy]]
    refusals: dict[int, str]
    """Why brokers do not tell, by broker."""

    def bytes_of(self, where: TopicPartition) -> int | None:
        """The size of the largest copy; None if no broker has told."""
        return max((each.bytes for each in self.copies.get(where, ())), default=None)


def read_disks(client: Client, snapshot: Snapshot, topics: Iterable[str] | None = None) -> Disks:
    """The replicas of these topics, or of all."""
    asked = None
    if topics is not None:
        asked = [
            DescribableLogDirTopic(topic=name, partitions=[each.number for each in snapshot.topics[name].partitions])
            for name in topics
            if name in snapshot.topics
        ]
    found = Disks([], {}, {})
    for broker in snapshot.brokers:
        if broker.is_fenced:
            continue
        try:
            answer = ask_node(client, broker.node_id, DescribeLogDirsRequest(topics=asked))
        except NotAuthenticated:
            raise
        except (Unreachable, KafkaError):
            continue
        if answer.error_code:
            found.refusals[broker.node_id] = error_code(answer.error_code).name
        for directory in answer.results:
            total = count = 0
            for topic in directory.topics:
                for each in topic.partitions:
                    copy = Copy(broker.node_id, directory.log_dir, each.partition_size, each.offset_lag)
                    found.copies.setdefault(TopicPartition(topic.name, each.partition_index), []).append(copy)
                    total += each.partition_size
                    count += 1
            found.directories.append(
                Directory(
                    broker.node_id,
                    directory.log_dir,
                    directory.error_code,
                    directory.total_bytes,
                    directory.usable_bytes,
                    total,
                    count,
                )
            )
    return found
