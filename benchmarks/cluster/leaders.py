"""Which broker leads which partition, and who is in sync, as Metadata of single brokers tells."""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from benchmarks.cluster.failure import BenchmarkFailure
from benchmarks.loads.request_client import RequestClient, connect
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.peers.cluster_processes import ClusterProcesses
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

VERSION = 12
LIST_OFFSETS_VERSION = 7
LATEST = -1
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.002


class Replication(NamedTuple):
    leader: int
    in_sync: int
    """How many replicas are in sync."""


Partitions = dict[tuple[str, int], Replication]
"""By topic and partition."""


class MetadataPoll:
    """Asks some brokers of a cluster, each over a connection of its own that is kept."""

    def __init__(self, brokers: Iterable[BrokerProcess], topics: Sequence[str]) -> None:
        self._clients = [RequestClient(broker) for broker in brokers]
        self._request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
        )

    def __enter__(self) -> "MetadataPoll":
        return self

    def __exit__(self, *unused: object) -> None:
        for client in self._clients:
            client.close()

    def read(self, client: RequestClient) -> Partitions:
        answer = client.ask(self._request, VERSION)
        return {
            (topic.name, partition.partition_index): Replication(partition.leader_id, len(partition.isr_nodes))
            for topic in answer.topics
            if not topic.error_code
            for partition in topic.partitions
        }

    def await_all(self, expected: Callable[[Partitions], bool], what: str, pause: float = POLL_SECONDS) -> float:
        """Wait until every broker says so. Returns the monotonic time of the last answer that was needed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for client in self._clients:
            while not expected(self.read(client)):
                if time.monotonic() > deadline:
                    raise BenchmarkFailure(f"{what}: not within {PATIENCE_SECONDS:g} s")
                time.sleep(pause)
        return time.monotonic()


def await_in_sync(cluster: ClusterProcesses, topics: Sequence[str], count: int, pause: float = 0.05) -> float:
    """Wait until every broker lists `count` partitions, each with a leader and all replicas in sync."""
    replicas = len(cluster.brokers)

    def is_complete(found: Partitions) -> bool:
        return len(found) == count and all(each.leader >= 0 and each.in_sync == replicas for each in found.values())

    with MetadataPoll(cluster.brokers.values(), topics) as poll:
        return poll.await_all(is_complete, f"{count} partitions with {replicas} replicas in sync", pause)


def await_ends(cluster: ClusterProcesses, topics: Sequence[str]) -> float:
    """Wait until every leader tells the ends of its partitions. Returns the monotonic time of the last answer."""
    with MetadataPoll((), topics) as poll, connect(next(iter(cluster.brokers.values()))) as client:
        found = poll.read(client)
    for broker_id, broker in cluster.brokers.items():
        led = [key for key, each in found.items() if each.leader == broker_id]
        by_topic = {
            topic: [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for _, index in keys]
            for topic, keys in groupby(sorted(led), itemgetter(0))
        }
        asked = [ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]
        with connect(broker) as client:
            client.ask_until_accepted(ListOffsetsRequest(replica_id=-1, topics=asked), LIST_OFFSETS_VERSION)
    return time.monotonic()


def has_other_leaders(gone: int, count: int) -> Callable[[Partitions], bool]:
    """Whether all `count` partitions have a leader that is not the broker `gone`."""

    def expected(found: Partitions) -> bool:
        return len(found) == count and all(each.leader not in (-1, gone) for each in found.values())

    return expected


def find_busiest_leader(cluster: ClusterProcesses, topics: Sequence[str]) -> int:
    """The broker that leads most of the partitions."""
    with MetadataPoll((), topics) as poll, connect(next(iter(cluster.brokers.values()))) as client:
        leaders = [each.leader for each in poll.read(client).values()]
    return max(cluster.brokers, key=leaders.count)
