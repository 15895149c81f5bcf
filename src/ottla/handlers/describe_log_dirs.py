"""DescribeLogDirs: the data directories of this broker, the partitions in each, their sizes, and the free space.

Versions: 2 flexible; 3 a code for the whole answer; 4 bytes of the volume (KIP-827); 5 cordoned directories (KIP-1066).
A replica that is on its way to another directory is listed in both.
"""

from collections.abc import Callable
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.handlers.authorization import may
from ottla.replication.moves import Move
from ottla.replication.partition import Partition
from ottla.security import rights
from ottla.storage.directories import DataDirectory
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

REQUIRES = rights.parts(rights.DESCRIBE_CLUSTER)

Wanted = dict[str, set[int]] | None
"""Partitions by topic; None means all."""


def handle(node: Node, call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    if not may(node, call, rights.DESCRIBE_CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: Wanted = None
    if call.body.topics is not None:
        wanted = {}
        for topic in call.body.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
    response = DescribeLogDirsResponse()
    for directory, partitions in node.replicas.group_by_directory().items():
        result = describe(directory, partitions, wanted, list_arriving(node, directory), partial(find_lag, node))
        result.is_cordoned = node.config.is_cordoned(directory.path)
        response.results.append(result)
    return response


def list_arriving(node: Node, directory: DataDirectory) -> list[Move]:
    """Replicas that are being moved into the directory."""
    return [move for move in node.replication.moves if move.target is directory]


def find_lag(node: Node, partition: Partition) -> int:
    """How far a follower is behind its leader's high watermark; 0 for a leader."""
    fetchers = node.replication.fetchers
    return (fetchers.lag(partition) or 0) if fetchers is not None else 0


def describe(
    directory: DataDirectory,
    partitions: list[Partition],
    wanted: Wanted,
    moves: list[Move],
    find_lag: Callable[[Partition], int],
) -> DescribeLogDirsResult:
    failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    if directory.failure is not None:
        return failed
    try:
        space = directory.space()
    except OSError:
        return failed
    found = [(partition, partition.log.size, find_lag(partition), False) for partition in partitions]
    found += [(move.partition, move.size, move.lag, True) for move in moves]
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition, size, lag, is_future in sorted(found, key=lambda each: each[0].topic_partition):
        if wanted is None or partition.index in wanted.get(partition.topic, ()):
            topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=partition.index, partition_size=size, offset_lag=lag, is_future_key=is_future
                )
            )
    return DescribeLogDirsResult(
        log_dir=directory.path, topics=list(topics.values()), total_bytes=space.total, usable_bytes=space.usable
    )
