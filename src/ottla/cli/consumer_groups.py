"""Consumer groups as brokers describe them: members, epochs, committed offsets and the ends of partitions."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.client import explain_code
from ottla.cli.command_error import CommandError
from ottla.cli.suggestions import suggest
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

CONSUMER_PROTOCOL = "consumer"
KINDS = ("consumer", "classic", "")
"""Groups of consumers. A broker that is older than the field leaves it empty."""
NOT_EMPTY, NOT_FOUND = 68, 69
UNSUPPORTED_VERSION = 35
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
DEAD = "Dead"
INACTIVE = ("Empty", DEAD)


class ListedGroup(NamedTuple):
    name: str
    kind: str
    state: str


class Member(NamedTuple):
    member_id: str
    instance_id: str
    host: str
    client_id: str
    epoch: int | None
    current: list[TopicPartition]
    target: list[TopicPartition] | None


class Group(NamedTuple):
    name: str
    state: str
    assignor: str
    coordinator: int
    epoch: int | None
    assignment_epoch: int | None
    members: list[Member]


class OffsetAndEpoch(NamedTuple):
    offset: int
    leader_epoch: int | None


def list_groups(client: "Client") -> list[ListedGroup]:
    """All groups of consumers, sorted by name. A classic group of Connect workers, for example, is none."""
    from ottla.wire.messages.list_groups import ListGroupsRequest

    found = []
    for answer in client.ask_each(ListGroupsRequest()).values():
        if answer.error_code:
            raise CommandError(f"cannot list groups: {explain_code(answer.error_code)}")
        for each in answer.groups:
            if each.protocol_type in (CONSUMER_PROTOCOL, "") and each.group_type.lower() in KINDS:
                found.append(ListedGroup(each.group_id, each.group_type.capitalize() or "Classic", each.group_state))
    return sorted(found)


def describe_group(client: "Client", name: str) -> Group:
    """CommandError if there is no such group."""
    found = find_group(client, name)
    if found is None:
        raise CommandError(f"there is no group {name!r}{suggest_group(client, name)}")
    return found


def suggest_group(client: "Client", name: str) -> str:
    """The end of an error message: the nearest group that exists, or nothing."""
    return suggest(name, [each.name for each in list_groups(client)])


def find_group(client: "Client", name: str) -> Group | None:
    """None if there is no such group."""
    from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
    from ottla.wire.messages.describe_groups import DescribeGroupsRequest

    coordinator = client.retry(lambda: client.find_coordinator("group", name))
    if client.connect(coordinator).knows(ConsumerGroupDescribeRequest):
        (found,) = client.ask_coordinator("group", name, ConsumerGroupDescribeRequest(group_ids=[name])).groups
        if not found.error_code:
            return _read_consumer_group(found, coordinator)
        if found.error_code not in (NOT_FOUND, UNSUPPORTED_VERSION):  # with these it may be a classic group
            raise CommandError(f"group {name!r}: {explain_code(found.error_code, found.error_message)}")
    (old,) = client.ask_coordinator("group", name, DescribeGroupsRequest(groups=[name])).groups
    if old.error_code == NOT_FOUND or old.group_state == DEAD:
        return None
    if old.error_code:
        raise CommandError(f"group {name!r}: {explain_code(old.error_code, old.error_message)}")
    members = [
        Member(
            each.member_id,
            each.group_instance_id or "",
            each.client_host,
            each.client_id,
            None,
            _parse_assignment(each.member_assignment),
            None,
        )
        for each in old.members
    ]
    return Group(name, old.group_state, old.protocol_data, coordinator, None, None, members)


def _read_consumer_group(found: Any, coordinator: int) -> Group:
    members = [
        Member(
            each.member_id,
            each.instance_id or "",
            each.client_host,
            each.client_id,
            each.member_epoch,
            _list_partitions(each.assignment),
            _list_partitions(each.target_assignment),
        )
        for each in found.members
    ]
    return Group(
        found.group_id,
        found.group_state,
        found.assignor_name,
        coordinator,
        found.group_epoch,
        found.assignment_epoch,
        members,
    )


def _list_partitions(assignment: Any) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, part) for topic in assignment.topic_partitions for part in topic.partitions
    )


def _parse_assignment(data: bytes) -> list[TopicPartition]:
    from ottla.coordinators.groups.consumer_protocol import read_assignment
    from ottla.wire.malformed import Malformed

    try:
        found = read_assignment(bytes(data)) if data else None
    except Malformed:  # a member with a protocol of its own
        return []
    topics = found.assigned_partitions if found is not None else ()
    return sorted(TopicPartition(topic.topic, part) for topic in topics for part in topic.partitions)


def fetch_committed(client: "Client", group: str) -> dict[TopicPartition, OffsetAndEpoch]:
    from ottla.client.groups import NAMES_UNTIL, raise_for_errors
    from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], group_id=group, topics=None
    )
    answer = client.ask_coordinator("group", group, request, NAMES_UNTIL)
    raise_for_errors(answer, f"offsets of group {group!r}")
    return {
        TopicPartition(topic.name, each.partition_index): OffsetAndEpoch(
            each.committed_offset, each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None
        )
        for topic in (answer.groups[0] if answer.groups else answer).topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def list_led_partitions(client: "Client", topics: Iterable[str]) -> dict[str, list[int]]:
    """The partitions of these topics that have a leader; nothing of a topic that does not exist."""
    from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

    asked = [MetadataRequestTopic(name=name) for name in sorted(set(topics))]
    if not asked:
        return {}
    answer = client.ask_any(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    return {
        topic.name: sorted(each.partition_index for each in topic.partitions if each.leader_id >= 0)
        for topic in answer.topics
        if not topic.error_code
    }


def list_led_offsets(
    client: "Client", partitions: Iterable[TopicPartition], spec: int, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """The offsets of those partitions that exist and have a leader."""
    wanted = set(partitions)
    led = list_led_partitions(client, {where.topic for where in wanted})
    there = [where for where in wanted if where.partition in led.get(where.topic, ())]
    return {where: found.offset for where, found in client.list_offsets(dict.fromkeys(there, spec), isolation).items()}
