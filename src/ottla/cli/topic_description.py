"""What `ottla topic describe` tells of a topic: who keeps its partitions, where, which offsets, and what was set."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.cli.client import Cluster
from ottla.cli.output import counted, show_table
from ottla.cli.refusal import Refusal
from ottla.cli.resource_settings import settings_of
from ottla.errors import KafkaError

_URL_SAFE = str.maketrans("+/", "-_")  # as Kafka's own tools write ids


class Copy(NamedTuple):
    """A replica as its broker keeps it."""

    broker: int
    directory: str
    bytes: int
    lag: int


class PartitionRow(NamedTuple):
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    beginning: int | None
    end: int | None
    copies: list[Copy]
    """Of those brokers that tell."""

    def document(self) -> dict[str, object]:
        return {**self._asdict(), "copies": [copy._asdict() for copy in self.copies]}

    def line(self) -> tuple[object, ...]:
        """For a table: of the copies only the leader's."""
        kept = next((copy for copy in self.copies if copy.broker == self.leader), None)
        return (*self[:-1], kept and kept.bytes, kept and kept.directory)


COLUMNS = (*PartitionRow._fields[:-1], "bytes", "directory")


class TopicDetails(NamedTuple):
    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionRow]
    settings: dict[str, str | None] | None
    """Those that somebody set; None if the cluster does not tell."""

    def document(self) -> dict[str, object]:
        return {
            "topic": self.name,
            "id": self.topic_id,
            "internal": self.internal,
            "settings": self.settings,
            "partitions": [row.document() for row in self.partitions],
        }


def described(cluster: Cluster, names: list[str]) -> list[TopicDetails]:
    """In the order they were asked for. A Refusal names those that do not exist."""
    found = cluster.describe(list(dict.fromkeys(names)))
    missing = [name for name, topic in found.items() if topic is None]
    if missing:
        raise Refusal(f"there is no topic {', '.join(map(repr, missing))} at {cluster.address}")
    copies = _copies(cluster, found)
    return [_details(cluster, name, copies) for name in found]


def _copies(cluster: Cluster, topics: Iterable[str]) -> dict[tuple[str, int], list[Copy]]:
    """By topic and partition. A broker that cannot be asked, or must not tell, is left out."""
    from ottla.client.connection import Unreachable
    from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    copies: dict[tuple[str, int], list[Copy]] = {}
    wanted = frozenset(topics)
    for broker in sorted(cluster.brokers):
        try:
            with cluster.connection(broker) as connection:
                response: DescribeLogDirsResponse = connection.ask(DescribeLogDirsRequest(topics=None))
        except (Refusal, Unreachable, KafkaError):
            continue
        for directory in response.results:
            for topic in directory.topics:
                for kept in topic.partitions if topic.name in wanted else ():
                    copy = Copy(broker, directory.log_dir, kept.partition_size, kept.offset_lag)
                    copies.setdefault((topic.name, kept.partition_index), []).append(copy)
    return copies


def _details(cluster: Cluster, name: str, copies: dict[tuple[str, int], list[Copy]]) -> TopicDetails:
    from confluent_kafka.admin import OffsetSpec

    topic = cluster.topic(name)
    led = [partition.id for partition in topic.partitions if partition.leader is not None]
    beginnings = cluster.offsets(name, led, OffsetSpec.earliest())
    ends = cluster.offsets(name, led, OffsetSpec.latest())
    rows = [
        PartitionRow(
            partition.id,
            partition.leader.id if partition.leader is not None else None,
            [node.id for node in partition.replicas],
            [node.id for node in partition.isr],
            beginnings.get(partition.id),
            ends.get(partition.id),
            copies.get((name, partition.id), []),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.id)
    ]
    topic_id = str(topic.topic_id).translate(_URL_SAFE)
    return TopicDetails(name, topic_id, topic.is_internal, rows, _settings(cluster, name))


def _settings(cluster: Cluster, name: str) -> dict[str, str | None] | None:
    """Of a topic that one may see, the settings may still be hidden."""
    try:
        settings = settings_of(cluster, "topic", name)
    except Refusal:
        return None
    return {setting.name: setting.value for setting in settings if setting.source == "dynamic-topic"}


def show_described(topics: list[TopicDetails]) -> None:
    for number, topic in enumerate(topics):
        if number:
            print()
        size = counted(len(topic.partitions), "partition")
        print(f"{topic.name}: {size}, id {topic.topic_id}{', internal' * topic.internal}")
        for name, value in (topic.settings or {}).items():
            print(f"{name}={value if value is not None else ''}")
        show_table(COLUMNS, [row.line() for row in topic.partitions])
