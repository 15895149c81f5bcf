"""Groups of every kind: classic, consumer, share and streams groups; their members, committed offsets and lag."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.client import LATEST, Client, error_code
from ottla.client.connection import NotAuthenticated, Unreachable
from ottla.client.groups import NAMES_UNTIL
from ottla.console.connections import ask_node
from ottla.console.facts.metadata import Snapshot
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.settings import raise_for_code
from ottla.errors import ErrorCode, KafkaError
from ottla.records.lag import count_lag
from ottla.topic_partition import TopicPartition
from ottla.wire.malformed import Malformed
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.schema import reader

GROUPS_AT_ONCE = 200
"""Groups in one OffsetFetch request."""

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"


class ListedGroup(NamedTuple):
    name: str
    kind: str
    state: str
    protocol: str
    """Of classic groups: consumer, connect, or what else its members call it."""
    coordinator: int


class OffsetAndMetadata(NamedTuple):
    offset: int
    metadata: str = ""
    lag: int | None = None
    """Only of share groups, whose lag the broker computes."""


Offsets = dict[TopicPartition, OffsetAndMetadata]


class GroupIndex(NamedTuple):
    """All groups with their committed offsets."""

    groups: dict[str, ListedGroup]
    offsets: dict[str, Offsets]
    readers: dict[str, list[str]]
    """The groups of each topic."""


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """What it reads. Tasks of a streams group have the subtopology instead of a topic."""


class GroupDetails(NamedTuple):
    group: ListedGroup
    assignor: str
    epoch: int | None
    members: list[Member]


def list_groups(client: Client, snapshot: Snapshot) -> dict[str, ListedGroup]:
    """Every group that the principal may see, by name. Brokers that do not answer are left out."""
    found: dict[str, ListedGroup] = {}
    for broker in snapshot.brokers:
        if broker.is_fenced:
            continue
        try:
            answer = ask_node(client, broker.node_id, ListGroupsRequest())
        except NotAuthenticated:
            raise
        except Unreachable:
            continue
        for each in answer.groups:
            kind = (each.group_type or CLASSIC).lower()
            found[each.group_id] = ListedGroup(
                each.group_id, kind, each.group_state, each.protocol_type, broker.node_id
            )
    return dict(sorted(found.items()))


def make_index(groups: dict[str, ListedGroup], offsets: dict[str, Offsets]) -> GroupIndex:
    readers: dict[str, list[str]] = {}
    for name, committed in offsets.items():
        for topic in sorted({where.topic for where in committed}):
            readers.setdefault(topic, []).append(name)
    return GroupIndex(groups, offsets, readers)


def read_offsets(client: Client, groups: Iterable[ListedGroup]) -> dict[str, Offsets]:
    """The committed offsets of many groups, in few requests. A group whose offsets cannot be read has none."""
    found: dict[str, Offsets] = {}
    by_node: dict[int, list[str]] = {}
    for group in groups:
        if group.kind == SHARE:
            found[group.name] = _read_share_offsets(client, group)
        else:
            by_node.setdefault(group.coordinator, []).append(group.name)
    for node, names in by_node.items():
        for start in range(0, len(names), GROUPS_AT_ONCE):
            found.update(_read_offsets_of(client, node, names[start : start + GROUPS_AT_ONCE]))
    return found


def _read_offsets_of(client: Client, node: int, names: list[str]) -> dict[str, Offsets]:
    connection = client.connect(node)
    versions = connection.versions(OffsetFetchRequest)
    if versions and versions[-1] < 8:  # an old broker is asked for one group at a time
        return {name: _collect(connection.ask(OffsetFetchRequest(group_id=name, topics=None))) for name in names}
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    answer = connection.ask(OffsetFetchRequest(groups=groups), NAMES_UNTIL)
    return {each.group_id: _collect(each) for each in answer.groups}


def _collect(answer: Any) -> Offsets:
    return {
        TopicPartition(topic.name, each.partition_index): OffsetAndMetadata(each.committed_offset, each.metadata or "")
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0 and not each.error_code
    }


def _read_share_offsets(client: Client, group: ListedGroup) -> Offsets:
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group.name, topics=None)
    try:
        answer = ask_node(client, group.coordinator, DescribeShareGroupOffsetsRequest(groups=[asked]))
    except KafkaError:
        return {}
    return {
        TopicPartition(topic.topic_name, each.partition_index): OffsetAndMetadata(
            each.start_offset, lag=None if each.lag < 0 else each.lag
        )
        for found in answer.groups
        for topic in found.topics
        for each in topic.partitions
        if each.start_offset >= 0 and not each.error_code
    }


def find_lags(client: Client, snapshot: Snapshot, offsets: Mapping[str, Offsets]) -> dict[str, int]:
    """How many records each group has not read yet, of the partitions that it has committed."""
    wanted = {where for committed in offsets.values() for where in committed}
    ends = list_offsets(client, snapshot, sorted(wanted), LATEST)
    return {name: sum_lag(committed, ends) for name, committed in offsets.items()}


def sum_lag(committed: Offsets, ends: Mapping[TopicPartition, int]) -> int:
    return sum(lag_of(each, ends.get(where)) or 0 for where, each in committed.items())


def lag_of(committed: OffsetAndMetadata, end: int | None) -> int | None:
    if committed.lag is not None:
        return committed.lag
    return None if end is None else count_lag(committed.offset, end)


def describe_group(client: Client, snapshot: Snapshot, group: ListedGroup) -> GroupDetails:
    if group.kind == CONSUMER:
        return _describe_modern(client, group, ConsumerGroupDescribeRequest(group_ids=[group.name]))
    if group.kind == SHARE:
        return _describe_modern(client, group, ShareGroupDescribeRequest(group_ids=[group.name]))
    if group.kind == STREAMS:
        return _describe_modern(client, group, StreamsGroupDescribeRequest(group_ids=[group.name]))
    (found,) = _ask(client, group.name, DescribeGroupsRequest(groups=[group.name])).groups
    raise_for_code(found.error_code, getattr(found, "error_message", None), f"group {group.name!r}")
    members = [
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            _parse_assignment(each.member_assignment),
        )
        for each in found.members
    ]
    return GroupDetails(group._replace(state=found.group_state), found.protocol_data, None, members)


def _describe_modern(client: Client, group: ListedGroup, request: Any) -> GroupDetails:
    (found,) = _ask(client, group.name, request).groups
    raise_for_code(found.error_code, found.error_message, f"group {group.name!r}")
    members = [
        Member(
            each.member_id,
            getattr(each, "instance_id", None),
            each.client_id,
            each.client_host.removeprefix("/"),
            _assigned(each.assignment),
        )
        for each in found.members
    ]
    assignor = getattr(found, "assignor_name", "")
    return GroupDetails(group._replace(state=found.group_state), assignor, found.group_epoch, members)


def _ask(client: Client, name: str, request: Any) -> Any:
    return client.ask_coordinator("group", name, request)


def _assigned(assignment: Any) -> tuple[TopicPartition, ...]:
    tasks = getattr(assignment, "active_tasks", None)
    if tasks is not None:
        return tuple(TopicPartition(f"task {each.subtopology_id}", part) for each in tasks for part in each.partitions)
    return tuple(
        TopicPartition(each.topic_name, part) for each in assignment.topic_partitions for part in each.partitions
    )


def _parse_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Of consumers; other kinds of classic groups have assignments of their own."""
    if len(data) < 2:
        return ()
    version = int.from_bytes(data[:2], "big")
    known = ConsumerProtocolAssignment.VERSIONS
    try:
        found, _ = reader(ConsumerProtocolAssignment, min(version, known[-1]))(bytes(data), 2)
    except Malformed:
        return ()
    return tuple(TopicPartition(topic.topic, part) for topic in found.assigned_partitions for part in topic.partitions)


def delete_group(client: Client, name: str) -> None:
    for each in _ask(client, name, DeleteGroupsRequest(groups_names=[name])).results:
        code = error_code(each.error_code)
        if code == ErrorCode.NON_EMPTY_GROUP:
            raise KafkaError(code, f"group {name!r} has members; stop them first")
        raise_for_code(each.error_code, None, f"group {name!r}")
