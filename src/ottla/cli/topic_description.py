"""What `ottla topic describe` tells of a topic: who keeps its partitions, which offsets they hold, what was set."""

from typing import NamedTuple

from ottla.cli.client import Cluster
from ottla.cli.output import counted, show_table
from ottla.cli.refusal import Refusal
from ottla.cli.resource_settings import settings_of

_URL_SAFE = str.maketrans("+/", "-_")  # as Kafka's own tools write ids


class PartitionRow(NamedTuple):
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    beginning: int | None
    end: int | None


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
            "partitions": [row._asdict() for row in self.partitions],
        }


def described(cluster: Cluster, names: list[str]) -> list[TopicDetails]:
    """In the order they were asked for. A Refusal names those that do not exist."""
    found = cluster.describe(list(dict.fromkeys(names)))
    missing = [name for name, topic in found.items() if topic is None]
    if missing:
        raise Refusal(f"there is no topic {', '.join(map(repr, missing))} at {cluster.address}")
    return [_details(cluster, name) for name in found]


def _details(cluster: Cluster, name: str) -> TopicDetails:
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
        show_table(PartitionRow._fields, topic.partitions)
