"""What `ottla topic describe` shows: the replicas of each partition, their directories, offsets, and settings."""

from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.cli.output import counted, show_table
from ottla.cli.resource_settings import settings_of
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription

_URL_SAFE = str.maketrans("+/", "-_")  # as Kafka's own tools write ids


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


def describe_topics(client: CommandClient, names: list[str]) -> list[TopicDetails]:
    """Describes topics in the order of `names`. Raises CommandError if one does not exist."""
    found = client.describe_topics(list(dict.fromkeys(names)))
    missing = [name for name, topic in found.items() if topic is None]
    if missing:
        raise client.explain_no_topic(*missing)
    topics = {name: topic for name, topic in found.items() if topic is not None}
    copies = _list_copies(client, topics)
    return [_describe_topic(client, name, topic, copies) for name, topic in topics.items()]


def _list_copies(client: CommandClient, topics: "dict[str, TopicDescription]") -> dict[TopicPartition, list[Copy]]:
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
        DescribableLogDirTopic(topic=name, partitions=[partition.id for partition in topic.partitions])
        for name, topic in topics.items()
    ]
    with client.open_own_client() as own:
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
    client: CommandClient, name: str, topic: "TopicDescription", copies: dict[TopicPartition, list[Copy]]
) -> TopicDetails:
    from confluent_kafka.admin import OffsetSpec

    led = [partition.id for partition in topic.partitions if partition.leader is not None]
    beginnings = client.list_offsets(name, led, OffsetSpec.earliest())
    ends = client.list_offsets(name, led, OffsetSpec.latest())
    rows = [
        PartitionRow(
            partition.id,
            partition.leader.id if partition.leader is not None else None,
            [node.id for node in partition.replicas],
            [node.id for node in partition.isr],
            beginnings.get(partition.id),
            ends.get(partition.id),
            copies.get(TopicPartition(name, partition.id), []),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.id)
    ]
    topic_id = str(topic.topic_id).translate(_URL_SAFE)
    return TopicDetails(name, topic_id, topic.is_internal, rows, _fetch_settings(client, name))


def _fetch_settings(client: CommandClient, name: str) -> dict[str, str | None] | None:
    """The settings set for a topic; None if the client may not read them."""
    try:
        settings = settings_of(client, "topic", name)
    except CommandError:
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
