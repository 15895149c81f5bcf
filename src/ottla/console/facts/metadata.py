"""The metadata snapshot: brokers, topics and partitions, with the sums that pages show."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.client.client import Client
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic


class BrokerNode(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class PartitionState(NamedTuple):
    number: int
    leader: int
    """-1 without a leader."""
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    adding: int
    """How many of the replicas a reassignment adds."""

    @property
    def is_under_replicated(self) -> bool:
        """As in Kafka, replicas that a reassignment adds are not missed."""
        return len(self.in_sync) < len(self.replicas) - self.adding


class TopicState(NamedTuple):
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionState, ...]

    @property
    def replication(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)

    @property
    def under_replicated(self) -> int:
        return sum(each.is_under_replicated for each in self.partitions)

    @property
    def leaderless(self) -> int:
        return sum(each.leader < 0 for each in self.partitions)


@dataclass(frozen=True)
class Snapshot:
    cluster_id: str
    controller: int
    brokers: tuple[BrokerNode, ...]
    topics: dict[str, TopicState]
    """In the order of their names."""
    partition_count: int = 0
    under_replicated: int = 0
    leaderless: int = 0
    led: dict[int, int] = field(default_factory=dict)
    """How many partitions each broker leads."""
    held: dict[int, int] = field(default_factory=dict)
    """How many replicas each broker holds."""

    def topic(self, name: str) -> TopicState:
        """Raises KafkaError if there is no such topic."""
        found = self.topics.get(name)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return found

    def troubled(self) -> Iterator[tuple[str, PartitionState]]:
        """Partitions without a leader or with too few replicas in sync."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader < 0 or partition.is_under_replicated:
                    yield topic.name, partition


def read_snapshot(client: Client) -> Snapshot:
    response: MetadataResponse = client.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    adding = _count_adding(client)
    topics = {name: _read_topic(topic, name, adding) for topic in response.topics if (name := topic.name)}
    led: dict[int, int] = {}
    held: dict[int, int] = {}
    count = under_replicated = leaderless = 0
    for state in topics.values():
        for partition in state.partitions:
            led[partition.leader] = led.get(partition.leader, 0) + 1
            for node in partition.replicas:
                held[node] = held.get(node, 0) + 1
            count += 1
            under_replicated += partition.is_under_replicated
            leaderless += partition.leader < 0
    brokers = tuple(
        BrokerNode(each.node_id, each.host, each.port, each.rack)
        for each in sorted(response.brokers, key=lambda each: each.node_id)
    )
    brokers = _with_fenced(client, brokers)
    ordered = dict(sorted(topics.items()))
    return Snapshot(
        response.cluster_id or "",
        response.controller_id,
        brokers,
        ordered,
        count,
        under_replicated,
        leaderless,
        led,
        held,
    )


def _with_fenced(client: Client, known: tuple[BrokerNode, ...]) -> tuple[BrokerNode, ...]:
    """Metadata names only brokers that serve clients; DescribeCluster from version 2 on also those that are fenced."""
    try:
        answer = client.ask_any(DescribeClusterRequest(include_fenced_brokers=True))
    except KafkaError:  # an old broker
        return known
    fenced = [
        BrokerNode(each.broker_id, each.host, each.port, each.rack, True) for each in answer.brokers if each.is_fenced
    ]
    there = {each.node_id for each in known}
    return tuple(sorted((*known, *(each for each in fenced if each.node_id not in there))))


def _count_adding(client: Client) -> dict[tuple[str, int], int]:
    """How many replicas are being added to each partition that is reassigned."""
    try:
        answer = client.ask_any(ListPartitionReassignmentsRequest(topics=None))
    except KafkaError:  # an old broker
        return {}
    return {
        (topic.name, each.partition_index): len(each.adding_replicas)
        for topic in answer.topics
        for each in topic.partitions
    }


def _read_topic(topic: MetadataResponseTopic, name: str, adding: dict[tuple[str, int], int]) -> TopicState:
    partitions = [
        PartitionState(
            each.partition_index,
            each.leader_id,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            adding.get((name, each.partition_index), 0),
        )
        for each in topic.partitions
    ]
    partitions.sort()
    return TopicState(name, str(UUID(bytes=bytes(topic.topic_id))), topic.is_internal, tuple(partitions))
