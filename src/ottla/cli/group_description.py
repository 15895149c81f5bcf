"""What `ottla group describe` tells of a group: what it has committed, how far that is from the end, who reads it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.cli.output import counted, show_table

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import ConsumerGroupDescription, MemberDescription

Place = tuple[str, int]


class OffsetRow(NamedTuple):
    topic: str
    partition: int
    committed: int | None
    """None if it is read and nothing was committed yet."""
    end: int | None
    """None if the partition is no more, or has no leader."""
    lag: int | None
    member: str | None
    client: str | None
    host: str | None
    metadata: str | None


class MemberRow(NamedTuple):
    member: str
    instance: str | None
    client: str
    host: str
    partitions: list[str]


class GroupDetails(NamedTuple):
    name: str
    state: str
    kind: str
    assignor: str
    coordinator: int
    members: list[MemberRow]
    offsets: list[OffsetRow]

    @property
    def lag(self) -> int:
        return sum(row.lag or 0 for row in self.offsets)

    def document(self) -> dict[str, object]:
        return {
            "group": self.name,
            "state": self.state,
            "type": self.kind,
            "assignor": self.assignor or None,
            "coordinator": self.coordinator,
            "lag": self.lag,
            "members": [row._asdict() for row in self.members],
            "offsets": [row._asdict() for row in self.offsets],
        }


def describe_groups(client: CommandClient, names: Iterable[str]) -> list[GroupDetails]:
    """In the order they were asked for. A CommandError names one that does not exist."""
    wanted = list(dict.fromkeys(names))
    asked = client.ask(client.admin.describe_consumer_groups, wanted)
    return [_details(client, client.wait_for(asked[name], f"group {name!r}")) for name in wanted]


def _details(client: CommandClient, group: "ConsumerGroupDescription") -> GroupDetails:
    committed = committed_offsets(client, group.group_id)
    if not committed and not group.members and group.state.name in ("DEAD", "UNKNOWN"):
        # Kafka describes a group that nobody has heard of as dead.
        raise CommandError(f"there is no group {group.group_id!r} at {client.address}")
    readers: dict[Place, MemberDescription] = {
        (place.topic, place.partition): member
        for member in group.members
        for place in member.assignment.topic_partitions
    }
    places = sorted({*committed, *readers})
    ends = end_offsets(client, places)
    return GroupDetails(
        group.group_id,
        group.state.name.lower().replace("_rebalancing", "-rebalance"),
        group.type.name.lower(),
        group.partition_assignor,
        group.coordinator.id,
        [_member(member) for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id))],
        [_offset(place, committed.get(place), ends.get(place), readers.get(place)) for place in places],
    )


def _member(member: "MemberDescription") -> MemberRow:
    places = sorted((place.topic, place.partition) for place in member.assignment.topic_partitions)
    return MemberRow(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.host,
        [f"{topic}-{partition}" for topic, partition in places],
    )


def _offset(
    place: Place, committed: "TopicPartition | None", end: int | None, reader: "MemberDescription | None"
) -> OffsetRow:
    topic, partition = place
    offset = committed.offset if committed is not None else None
    metadata = (committed.metadata or None) if committed is not None else None
    lag = None if offset is None or end is None else max(end - offset, 0)
    if reader is None:
        return OffsetRow(topic, partition, offset, end, lag, None, None, None, metadata)
    return OffsetRow(topic, partition, offset, end, lag, reader.member_id, reader.client_id, reader.host, metadata)


def committed_offsets(client: CommandClient, group: str) -> "dict[Place, TopicPartition]":
    """Everything that a group has committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = client.ask(client.admin.list_consumer_group_offsets, [ConsumerGroupTopicPartitions(group)])
    answer = client.wait_for(asked[group], f"group {group!r}")
    return {
        (place.topic, place.partition): place
        for place in answer.topic_partitions or ()
        if place.error is None and place.offset >= 0
    }


def end_offsets(client: CommandClient, places: Iterable[Place]) -> dict[Place, int]:
    """Of partitions that are there and have a leader."""
    from confluent_kafka.admin import OffsetSpec

    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    found = {}
    for topic, description in client.describe_topics(list(by_topic)).items() if by_topic else ():
        if description is not None:
            led = {partition.id for partition in description.partitions if partition.leader is not None}
            there = [partition for partition in by_topic[topic] if partition in led]
            for partition, offset in client.list_offsets(topic, there, OffsetSpec.latest()).items():
                found[topic, partition] = offset
    return found


def show_groups(groups: list[GroupDetails], row: type[OffsetRow] | type[MemberRow]) -> None:
    for number, group in enumerate(groups):
        if number:
            print()
        facts = [group.state, group.kind, group.assignor, counted(len(group.members), "member"), f"lag {group.lag}"]
        print(f"{group.name}: {', '.join(filter(None, facts))}, coordinator {group.coordinator}")
        rows: list[OffsetRow] | list[MemberRow] = group.members if row is MemberRow else group.offsets
        if rows:
            show_table(row._fields, rows)
