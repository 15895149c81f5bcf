"""What `ottla topic describe` shows: the replicas of each partition, their directories, offsets, and settings."""

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import find_topics
from ottla.cli.command_error import CommandError
from ottla.cli.output import counted, show_table
from ottla.cli.resource_settings import read_settings
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.metadata import MetadataResponseTopic


class Copy(NamedTuple):
    """A replica on the disk of a broker."""

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
    """The copies on brokers that answered."""

    def document(self) -> dict[str, object]:
        return {**self._asdict(), "copies": [copy._asdict() for copy in self.copies]}

    def line(self) -> tuple[object, ...]:
        """A row of the table, which shows only the leader's copy."""
        kept = next((copy for copy in self.copies if copy.broker == self.leader), None)
        return (*self[:-1], kept and kept.bytes, kept and kept.directory)


COLUMNS = (*PartitionRow._fields[:-1], "bytes", "directory")


class TopicDetails(NamedTuple):
    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionRow]
    settings: dict[str, str | None] | None
    """The settings of this topic itself; None if the client may not read them."""

    def document(self) -> dict[str, object]:
        return {
            "topic": self.name,
            "id": self.topic_id,
            "internal": self.internal,
            "settings": self.settings,
            "partitions": [row.document() for row in self.partitions],
        }


def describe_topics(own: "Client", names: list[str]) -> list[TopicDetails]:
    """Describes topics in the order of `names`. Raises CommandError if one does not exist."""
    topics = find_topics(own, names)
    copies = _list_copies(own, topics)
    return [_describe_topic(own, name, topic, copies) for name, topic in topics.items()]


def _list_copies(own: "Client", topics: "dict[str, MetadataResponseTopic]") -> dict[TopicPartition, list[Copy]]:
    """The replicas of these topics on disk. A broker that cannot be reached, or does not permit it, is left out."""
    from ottla.client.connection import Unreachable
    from ottla.errors import KafkaError
    from ottla.wire.messages.describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

    copies: dict[TopicPartition, list[Copy]] = {}
    wanted = [
        DescribableLogDirTopic(topic=name, partitions=[each.partition_index for each in topic.partitions])
        for name, topic in topics.items()
    ]
    for broker in own.list_brokers():
        try:
            response: DescribeLogDirsResponse = own.connect(broker).ask(DescribeLogDirsRequest(topics=wanted))
        except (Unreachable, KafkaError):
            continue
        for directory in response.results:
            for topic in directory.topics:
                for kept in topic.partitions:
                    copy = Copy(broker, directory.log_dir, kept.partition_size, kept.offset_lag)
                    copies.setdefault(TopicPartition(topic.name, kept.partition_index), []).append(copy)
    return copies


def _describe_topic(
    own: "Client", name: str, topic: "MetadataResponseTopic", copies: dict[TopicPartition, list[Copy]]
) -> TopicDetails:
    from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED

    led = [TopicPartition(name, each.partition_index) for each in topic.partitions if each.leader_id >= 0]
    beginnings = own.list_offsets(dict.fromkeys(led, EARLIEST), READ_COMMITTED)
    ends = own.list_offsets(dict.fromkeys(led, LATEST), READ_COMMITTED)
    rows = []
    for each in sorted(topic.partitions, key=lambda each: each.partition_index):
        where = TopicPartition(name, each.partition_index)
        rows.append(
            PartitionRow(
                each.partition_index,
                each.leader_id if each.leader_id >= 0 else None,
                each.replica_nodes,
                each.isr_nodes,
                beginnings[where].offset if where in beginnings else None,
                ends[where].offset if where in ends else None,
                copies.get(where, []),
            )
        )
    topic_id = urlsafe_b64encode(topic.topic_id).decode().rstrip("=")  # as Kafka's own tools write ids
    return TopicDetails(name, topic_id, topic.is_internal, rows, _fetch_settings(own, name))


def _fetch_settings(own: "Client", name: str) -> dict[str, str | None] | None:
    """The settings set for a topic; None if the client may not read them, or no broker tells."""
    from ottla.client.connection import Unreachable
    from ottla.errors import KafkaError

    try:
        settings = read_settings(own, "topic", name)
    except (CommandError, KafkaError, Unreachable):
        return None
    return {setting.name: setting.value for setting in settings if setting.source == "dynamic-topic"}


def show_topics(topics: list[TopicDetails]) -> None:
    for number, topic in enumerate(topics):
        if number:
            print()
        size = counted(len(topic.partitions), "partition")
        print(f"{topic.name}: {size}, id {topic.topic_id}{', internal' * topic.internal}")
        for name, value in (topic.settings or {}).items():
            print(f"{name}={value if value is not None else ''}")
        show_table(COLUMNS, [row.line() for row in topic.partitions])
