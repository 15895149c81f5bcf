"""`ottla kafka consumer-groups --describe`: offsets and lag, members, or the state of groups."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.consumer_groups import Group, Member, fetch_committed, list_led_offsets
from ottla.cli.kafka.tables import show_columns
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

LATEST = -1
OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
WIDTHS = (15, 15, 10, 15, 15, 15, 15, 15, 0)
STATE = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")


def show_group(client: "Client", group: Group, options: argparse.Namespace) -> None:
    if options.members:
        _note_members(group)
        _show_members(group, verbose=options.verbose)
    elif options.state is not None:
        _show_state(client, group, verbose=options.verbose)
    else:
        _note_members(group)
        _show_offsets(client, group, verbose=options.verbose)


def _note_members(group: Group) -> None:
    """Beside the table, on stderr, as Kafka's tool does."""
    if not group.members:
        print(f"\nConsumer group '{group.name}' has no active members.", file=sys.stderr)
    elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        print(f"\nWarning: Consumer group '{group.name}' is rebalancing.", file=sys.stderr)


def _show_offsets(client: "Client", group: Group, *, verbose: bool) -> None:
    committed = fetch_committed(client, group.name)
    readers = {where: member for member in group.members for where in member.current}
    ends = list_led_offsets(client, {*committed, *readers}, LATEST)
    rows: list[list[object]] = []
    for where in sorted({*committed, *readers}):
        known, end = committed.get(where), ends.get(where)
        offset = known.offset if known is not None else None
        lag = None if offset is None or end is None else end - offset
        row: list[object] = [group.name, *where, offset, end, lag, *_name_reader(readers.get(where))]
        rows.append([*row[:3], known.leader_epoch if known is not None else None, *row[3:]] if verbose else row)
    for member in group.members:
        if not member.current:
            rows.append([group.name, *[None] * (5 + verbose), *_name_reader(member)])
    titles: Sequence[str] = OFFSETS
    widths: Sequence[int] = WIDTHS
    if verbose:
        titles, widths = (*OFFSETS[:3], "LEADER-EPOCH", *OFFSETS[3:]), (*WIDTHS[:3], 15, *WIDTHS[3:])
    show_columns(titles, rows, widths)


def _name_reader(member: Member | None) -> tuple[str | None, str | None, str | None]:
    return (None, None, None) if member is None else (member.member_id, member.host, member.client_id)


def _show_members(group: Group, *, verbose: bool) -> None:
    static = any(member.instance_id for member in group.members)
    titles = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    if verbose:
        titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    rows = []
    for member in group.members:
        row: list[object] = [group.name, member.member_id, *([member.instance_id] if static else [])]
        row += [member.host, member.client_id, len(member.current)]
        if verbose:
            target = None if member.target is None else _join(member.target)
            row += [member.epoch, _join(member.current), group.assignment_epoch, target]
        rows.append(row)
    show_columns(titles, rows, [15] * len(titles))


def _join(partitions: Sequence[TopicPartition]) -> str | None:
    """`a:0,1;b:2`."""
    by_topic: dict[str, list[str]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(str(partition))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in sorted(by_topic.items())) or None


def _show_state(client: "Client", group: Group, *, verbose: bool) -> None:
    from ottla.cli.kafka.flags import fetch_metadata

    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in fetch_metadata(client).brokers}
    coordinator = f"{addresses.get(group.coordinator, '-')}  ({group.coordinator})"
    row: list[object] = [group.name, coordinator, group.assignor or None, group.state]
    titles = list(STATE[:4])
    if verbose:
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [group.epoch, group.assignment_epoch]
    show_columns([*titles, STATE[4]], [[*row, len(group.members)]], [15, 25, 20, 20, *[15, 25][: len(titles) - 4], 0])
