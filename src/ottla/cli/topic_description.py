"""What `ottla topic describe` tells of a topic: who keeps its partitions, where, which offsets, and what was set."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.cli.output import counted, show_table
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


def describe_topics(client: CommandClient, names: list[str]) -> list[TopicDetails]:
    """In the order they were asked for. A CommandError names those that do not exist."""
    found = client.describe_topics(list(dict.fromkeys(names)))
    missing = [name for name, topic in found.items() if topic is None]
    if missing:
        raise CommandError(f"there is no topic {', '.join(map(repr, missing))} at {client.address}")
    copies = _copies(client, found)
    return [_details(client, name, copies) for name in found]


def _copies(client: CommandClient, topics: Iterable[str]) -> dict[tuple[str, int], list[Copy]]:
    """By topic and partition. A broker that cannot be asked, or must not tell, is left out."""
    from ottla.client.connection import Unreachable
    from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    copies: dict[tuple[str, int], list[Copy]] = {}
    wanted = frozenset(topics)
    for broker in sorted(client.brokers):
        try:
            with client.connection(broker) as connection:
                response: DescribeLogDirsResponse = connection.ask(DescribeLogDirsRequest(topics=None))
        except (CommandError, Unreachable, KafkaError):
            continue
        for directory in response.results:
            for topic in directory.topics:
                for kept in topic.partitions if topic.name in wanted else ():
                    copy = Copy(broker, directory.log_dir, kept.partition_size, kept.offset_lag)
                    copies.setdefault((topic.name, kept.partition_index), []).append(copy)
    return copies


def _details(client: CommandClient, name: str, copies: dict[tuple[str, int], list[Copy]]) -> TopicDetails:
    from confluent_kafka.admin import OffsetSpec

    topic = client.describe_topic(name)
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
            copies.get((name, partition.id), []),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.id)
    ]
    topic_id = str(topic.topic_id).translate(_URL_SAFE)
    return TopicDetails(name, topic_id, topic.is_internal, rows, _settings(client, name))


def _settings(client: CommandClient, name: str) -> dict[str, str | None] | None:
    """Of a topic that one may see, the settings may still be hidden."""
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
