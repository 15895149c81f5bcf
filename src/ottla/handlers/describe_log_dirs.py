"""DescribeLogDirs: the data directories of this broker, the partitions in each, their sizes, and the free space.

Versions: 2 flexible; 3 a code for the whole answer; 4 bytes of the volume (KIP-827); 5 cordoned directories (KIP-1066).
Partitions are never moved between directories, so no replica is a future one and none lags; no directory is cordoned.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.storage.directories import DataDirectory
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

VERSIONS = range(1, 6)

Wanted = dict[str, set[int]] | None
"""Partitions by topic; None means all."""


def handle(node: Node, call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    wanted: Wanted = None
    if call.body.topics is not None:
        wanted = {}
        for topic in call.body.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
    return DescribeLogDirsResponse(
        results=[
            describe(directory, partitions, wanted) for directory, partitions in node.replicas.by_directory().items()
        ]
    )


def describe(directory: DataDirectory, partitions: list[Partition], wanted: Wanted) -> DescribeLogDirsResult:
    failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    if directory.failure is not None:
        return failed
    try:
        space = directory.space()
    except OSError:
        return failed
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in sorted(partitions, key=lambda partition: (partition.topic, partition.index)):
        if wanted is None or partition.index in wanted.get(partition.topic, ()):
            topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
            topic.partitions.append(
                DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.log.size)
            )
    return DescribeLogDirsResult(
        log_dir=directory.path, topics=list(topics.values()), total_bytes=space.total, usable_bytes=space.usable
    )
