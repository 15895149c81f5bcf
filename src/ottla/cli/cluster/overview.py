"""One view of a cluster: its brokers, its partitions, and what is wrong with each of them."""

from argparse import ArgumentTypeError
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.command_error import CommandError
from ottla.cli.numbers import parse_broker_id
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

MIN_IN_SYNC = "min.insync.replicas"
TOPIC_RESOURCE = 2
TOPICS_AT_ONCE = 500
"""Topics whose settings are asked for in one request."""
NAMED_MAX = 3
"""Errors that one line names."""

Candidates = tuple[list[int] | None, list[int] | None]
"""Replicas that may lead although they are not in sync, and those that did before. None if the cluster says nothing."""


class BrokerState(NamedTuple):
    id: int
    address: str
    rack: str | None
    fenced: bool
    cordoned: bool = False
    """Gets no new replicas. Only `mark_cordoned` in directories.py finds it out: every broker must be asked."""
    obstacle: str | None = None
    """Why the broker cannot change the metadata. Only `mark_obstacles` in obstacles.py finds it out."""


class PartitionState(NamedTuple):
    where: TopicPartition
    leader: int
    """-1: the partition is offline."""
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds: some of `replicas`."""
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment removes in the end: some of `replicas`."""

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that the partition has when nothing moves any more."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def old_replicas(self) -> tuple[int, ...]:
        """The replicas that the partition had before its reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def is_offline(self) -> bool:
        return self.leader < 0

    @property
    def is_under_replicated(self) -> bool:
        """As in Kafka, replicas that a reassignment adds are not missed."""
        return len(self.in_sync) < len(self.replicas) - len(self.adding)

    @property
    def is_internal(self) -> bool:
        return self.where.topic.startswith("__")

    @property
    def leads_elsewhere(self) -> bool:
        """Whether another replica than the preferred one, which is the first, leads."""
        return self.leader >= 0 and self.leader != self.replicas[0]


class Reassignment(NamedTuple):
    """A partition whose replicas are moving."""

    where: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Overview(NamedTuple):
    cluster_id: str
    brokers: list[BrokerState]
    partitions: list[PartitionState]
    min_in_sync: dict[str, int]
    """min.insync.replicas by topic, of the topics for which it was asked."""
    reassignments: list[Reassignment]

    def is_under_min_in_sync(self, partition: PartitionState) -> bool:
        # A topic with fewer replicas than min.insync.replicas can be written to, in Ottla and in Kafka.
        needed = min(self.min_in_sync.get(partition.where.topic, 1), len(partition.replicas))
        return len(partition.in_sync) < needed

    def alive(self) -> list[BrokerState]:
        return [broker for broker in self.brokers if not broker.fenced]


def observe(own: "Client", *, settings: bool = True, every_topic: bool = False) -> Overview:
    """Ask the cluster for everything that the actions show. Without `settings` min.insync.replicas are left out.

    Only topics with a replica that is not in sync can be below min.insync.replicas, so only theirs is asked for, unless
    `every_topic` says otherwise: of thousands of topics it takes seconds.
    """
    from ottla.wire.messages.describe_cluster import DescribeClusterRequest
    from ottla.wire.messages.metadata import MetadataRequest

    described = own.ask_any(DescribeClusterRequest(include_fenced_brokers=True, endpoint_type=1))
    raise_for_error(described, "cannot describe the cluster")
    metadata = own.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    brokers = [
        BrokerState(each.broker_id, f"{each.host}:{each.port}", each.rack, each.is_fenced)
        for each in sorted(described.brokers, key=lambda each: each.broker_id)
    ]
    reassignments = list_reassignments(own)
    adding = {each.where: each.adding for each in reassignments}
    removing = {each.where: each.removing for each in reassignments}
    partitions = [
        PartitionState(
            where := TopicPartition(topic.name, each.partition_index),
            each.leader_id,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            adding.get(where, ()),
            removing.get(where, ()),
        )
        for topic in sorted(metadata.topics, key=attrgetter("name"))
        for each in sorted(topic.partitions, key=attrgetter("partition_index"))
    ]
    topics = {each.where.topic for each in partitions if every_topic or len(each.in_sync) < len(each.replicas)}
    return Overview(
        described.cluster_id,
        brokers,
        partitions,
        _fetch_min_in_sync(own, sorted(topics)) if settings else {},
        reassignments,
    )


def fetch_candidates(client: "Client", topics: Iterable[str]) -> dict[TopicPartition, Candidates]:
    """Who else may lead the partitions of topics (KIP-966). Nothing if the brokers are older than the request."""
    from ottla.errors import ErrorCode, KafkaError
    from ottla.wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsRequestCursor,
        TopicRequest,
    )

    names = sorted(topics)
    found: dict[TopicPartition, Candidates] = {}
    cursor = None
    while names:
        asked = [TopicRequest(name=name) for name in names]
        try:
            answer = client.ask_any(DescribeTopicPartitionsRequest(topics=asked, cursor=cursor))
        except KafkaError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return {}
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                found[where] = (each.eligible_leader_replicas, each.last_known_elr)
        if answer.next_cursor is None:
            return found
        following = answer.next_cursor
        names = [name for name in names if name >= following.topic_name]
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=following.topic_name, partition_index=following.partition_index
        )
    return found


def list_reassignments(own: "Client") -> list[Reassignment]:
    from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

    answer = own.ask_any(ListPartitionReassignmentsRequest(topics=None))
    raise_for_error(answer, "cannot list reassignments")
    return sorted(
        Reassignment(
            TopicPartition(topic.name, each.partition_index),
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    )


def _fetch_min_in_sync(own: "Client", topics: Sequence[str]) -> dict[str, int]:
    found = fetch_topic_settings(own, topics, [MIN_IN_SYNC])
    return {topic: int(settings.get(MIN_IN_SYNC) or 1) for topic, settings in found.items()}


def fetch_topic_settings(own: "Client", topics: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The values of these settings by topic; without those that have none, or that may not be read."""
    from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    requests = (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(names)
                )
                for topic in topics[begin : begin + TOPICS_AT_ONCE]
            ]
        )
        for begin in range(0, len(topics), TOPICS_AT_ONCE)
    )
    return {
        result.resource_name: {config.name: config.value for config in result.configs if config.value is not None}
        for answer in own.ask_any_in_turn(requests)
        for result in answer.results
    }


def raise_for_error(answer: Any, what: str) -> None:
    """CommandError if the answer as a whole, or one of its parts, carries an error."""
    if answer.error_code:
        raise CommandError(f"{what}: {explain_code(answer.error_code, getattr(answer, 'error_message', None))}")


def explain_code(code: int, message: str | None) -> str:
    from ottla.client.connection import name_error

    return message or name_error(code)


def join_first(texts: Sequence[str]) -> str:
    """The first of the texts, and how many more there are: errors of thousands of partitions are not read."""
    more = len(texts) - NAMED_MAX
    return "; ".join([*texts[:NAMED_MAX], *([f"... and {more} more"] if more > 0 else [])])


def name_brokers(ids: Iterable[int]) -> str:
    """`broker 1`, `brokers 1, 2`."""
    names = [str(number) for number in ids]
    return f"broker{'s' * (len(names) != 1)} {', '.join(names)}"


def parse_broker_ids(text: str) -> tuple[int, ...]:
    """An argparse type: broker ids such as `1,2,3`."""
    ids = tuple(parse_broker_id(word) for word in text.split(","))
    if len(set(ids)) != len(ids):
        raise ArgumentTypeError(f"{text} names a broker twice")
    return ids


def require_brokers(overview: Overview, ids: Iterable[int]) -> None:
    """CommandError if one of the ids is not a broker that is alive."""
    alive = {broker.id for broker in overview.alive()}
    missing = [str(number) for number in ids if number not in alive]
    if missing:
        known = ", ".join(str(number) for number in sorted(alive))
        raise CommandError(f"broker {', '.join(missing)} is not alive; the cluster has {known}")
