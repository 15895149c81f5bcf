"""What `ottla group describe` shows of a group: committed offsets, lag, and members."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client_settings import BOOTSTRAP
from ottla.cli.command_error import CommandError
from ottla.cli.consumer_groups import READ_COMMITTED, Member, find_group, list_led_offsets, suggest_group
from ottla.cli.offset_ranges import LATEST
from ottla.cli.output import counted, hyphenate, show_table
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client
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


def describe_groups(own: "Client", names: Iterable[str]) -> list[GroupDetails]:
    """Describes groups in the order of `names`. Raises CommandError for a group that does not exist."""
    return [_describe_group(own, name) for name in dict.fromkeys(names)]


def _describe_group(own: "Client", name: str) -> GroupDetails:
    from ottla.client.groups import fetch_offsets

    group = find_group(own, name)
    if group is None:
        address = own.raw_settings[BOOTSTRAP]
        raise CommandError(f"there is no group {name!r} at {address}{suggest_group(own, name)}")
    committed = fetch_offsets(own, name)
    readers = {where: member for member in group.members for where in member.current}
    partitions = sorted({*committed, *readers})
    ends = list_led_offsets(own, partitions, LATEST, READ_COMMITTED)
    return GroupDetails(
        name,
        hyphenate(group.state),
        "classic" if group.epoch is None else "consumer",
        group.assignor,
        group.coordinator,
        [
            MemberRow(
                each.member_id,
                each.instance_id or None,
                each.client_id,
                each.host,
                [str(where) for where in each.current],
            )
            for each in sorted(group.members, key=lambda each: (each.client_id, each.member_id))
        ],
        [_offset_row(where, committed.get(where), ends.get(where), readers.get(where)) for where in partitions],
    )


def _offset_row(
    where: TopicPartition, committed: "CommittedOffset | None", end: int | None, reader: Member | None
) -> OffsetRow:
    offset = committed.offset if committed is not None else None
    metadata = (committed.metadata or None) if committed is not None else None
    lag = None if offset is None or end is None else max(end - offset, 0)
    if reader is None:
        return OffsetRow(*where, offset, end, lag, None, None, None, metadata)
    return OffsetRow(*where, offset, end, lag, reader.member_id, reader.client_id, reader.host, metadata)


def show_groups(groups: list[GroupDetails], row: type[OffsetRow] | type[MemberRow]) -> None:
    for number, group in enumerate(groups):
        if number:
            print()
        facts = [group.state, group.kind, group.assignor, counted(len(group.members), "member"), f"lag {group.lag}"]
        print(f"{group.name}: {', '.join(filter(None, facts))}, coordinator {group.coordinator}")
        rows: list[OffsetRow] | list[MemberRow] = group.members if row is MemberRow else group.offsets
        if rows:
            show_table(row._fields, rows)
