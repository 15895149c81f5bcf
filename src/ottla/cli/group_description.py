"""What `ottla group describe` shows of a group: committed offsets, lag, and members."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.cli.output import counted, show_table
from ottla.cli.suggestions import suggest
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription, MemberDescription

    from ottla.client.groups import CommittedOffset


class OffsetRow(NamedTuple):
    topic: str
    partition: int
    committed: int | None
    """None if a member reads the partition and nothing was committed yet."""
    end: int | None
    """None if the partition does not exist any more, or has no leader."""
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
    """Describes groups in the order of `names`. Raises CommandError for a group that does not exist."""
    wanted = list(dict.fromkeys(names))
    asked = client.ask(client.admin.describe_consumer_groups, wanted)
    return [_describe_group(client, client.wait_for(asked[name], f"group {name!r}")) for name in wanted]


def _describe_group(client: CommandClient, group: "ConsumerGroupDescription") -> GroupDetails:
    committed = fetch_committed_offsets(client, group.group_id)
    if not committed and not group.members and group.state.name in ("DEAD", "UNKNOWN"):
        # Kafka describes a group that does not exist as dead.
        raise CommandError(
            f"there is no group {group.group_id!r} at {client.address}{suggest_group(client, group.group_id)}"
        )
    readers: dict[TopicPartition, MemberDescription] = {
        TopicPartition(assigned.topic, assigned.partition): member
        for member in group.members
        for assigned in member.assignment.topic_partitions
    }
    partitions = sorted({*committed, *readers})
    ends = list_end_offsets(client, partitions)
    return GroupDetails(
        group.group_id,
        group.state.name.lower().replace("_rebalancing", "-rebalance"),
        group.type.name.lower(),
        group.partition_assignor,
        group.coordinator.id,
        [
            _member_row(member)
            for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id))
        ],
        [_offset_row(where, committed.get(where), ends.get(where), readers.get(where)) for where in partitions],
    )


def suggest_group(client: CommandClient, name: str) -> str:
    """The end of an error message: the nearest group that exists, or nothing."""
    found = client.wait_for(client.admin.list_consumer_groups(), "cannot list groups")
    return suggest(name, [group.group_id for group in found.valid or ()])


def _member_row(member: "MemberDescription") -> MemberRow:
    assigned = sorted(TopicPartition(each.topic, each.partition) for each in member.assignment.topic_partitions)
    return MemberRow(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.host,
        [str(where) for where in assigned],
    )


def _offset_row(
    where: TopicPartition, committed: "CommittedOffset | None", end: int | None, reader: "MemberDescription | None"
) -> OffsetRow:
    offset = committed.offset if committed is not None else None
    metadata = (committed.metadata or None) if committed is not None else None
    lag = None if offset is None or end is None else max(end - offset, 0)
    if reader is None:
        return OffsetRow(*where, offset, end, lag, None, None, None, metadata)
    return OffsetRow(*where, offset, end, lag, reader.member_id, reader.client_id, reader.host, metadata)


def fetch_committed_offsets(client: CommandClient, group: str) -> "dict[TopicPartition, CommittedOffset]":
    """Everything that a group has committed.

    confluent-kafka 2.16 reads past the end of an offset's metadata, and fails where it finds no UTF-8 there. So the
    offsets are fetched with Ottla's own client.
    """
    from ottla.client.groups import fetch_offsets

    with client.open_own_client() as own:
        return fetch_offsets(own, group)


def list_end_offsets(client: CommandClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offsets of those partitions that exist and have a leader."""
    from confluent_kafka.admin import OffsetSpec

    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    found = {}
    for topic, description in client.describe_topics(list(by_topic)).items() if by_topic else ():
        if description is not None:
            led = {partition.id for partition in description.partitions if partition.leader is not None}
            there = [partition for partition in by_topic[topic] if partition in led]
            for partition, offset in client.list_offsets(topic, there, OffsetSpec.latest()).items():
                found[TopicPartition(topic, partition)] = offset
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
