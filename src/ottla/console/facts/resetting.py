"""Resets of committed offsets: a plan for each partition first, then its execution."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.groups import CommittedOffset, commit_offsets, raise_for_errors
from ottla.console.facts.groups import SHARE, ListedGroup, Offsets
from ottla.console.facts.metadata import Snapshot
from ottla.console.facts.offsets import list_offsets
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)

TO_EARLIEST, TO_LATEST, TO_TIME, TO_OFFSET, SHIFT = "earliest", "latest", "time", "offset", "shift"
TARGETS = (TO_EARLIEST, TO_LATEST, TO_TIME, TO_OFFSET, SHIFT)


class PlannedReset(NamedTuple):
    where: TopicPartition
    before: int | None
    after: int
    end: int

    @property
    def lag_after(self) -> int:
        return max(self.end - self.after, 0)


def plan_reset(
    client: Client,
    snapshot: Snapshot,
    committed: Offsets,
    partitions: Iterable[TopicPartition],
    target: str,
    number: int = 0,
) -> list[PlannedReset]:
    """What a reset would do. `number` is the time (ms), the offset, or by how much to shift.

    Offsets are limited to those that exist. A partition without a leader is left out.
    """
    wanted = sorted(set(partitions))
    first = list_offsets(client, snapshot, wanted, EARLIEST)
    end = list_offsets(client, snapshot, wanted, LATEST)
    at_time = list_offsets(client, snapshot, wanted, number) if target == TO_TIME else {}
    plan = []
    for where in wanted:
        if where not in first or where not in end:
            continue
        before = committed[where].offset if where in committed else None
        if target == TO_EARLIEST:
            after = first[where]
        elif target == TO_LATEST:
            after = end[where]
        elif target == TO_TIME:
            after = at_time.get(where, -1)
            after = end[where] if after < 0 else after
        elif target == TO_OFFSET:
            after = number
        else:
            after = (end[where] if before is None else before) + number
        plan.append(PlannedReset(where, before, min(max(after, first[where]), end[where]), end[where]))
    return plan


def execute_reset(client: Client, group: ListedGroup, plan: Iterable[PlannedReset]) -> None:
    """Commit the planned offsets. Raises KafkaError if the group has members."""
    offsets = {each.where: each.after for each in plan}
    if group.kind == SHARE:
        _alter_share_group(client, group.name, offsets)
    else:
        commit_offsets(client, group.name, {where: CommittedOffset(offset) for where, offset in offsets.items()})


def _alter_share_group(client: Client, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for where, offset in offsets.items():
        topic = topics.setdefault(where.topic, AlterShareGroupOffsetsRequestTopic(topic_name=where.topic))
        topic.partitions.append(
            AlterShareGroupOffsetsRequestPartition(partition_index=where.partition, start_offset=offset)
        )
    request = AlterShareGroupOffsetsRequest(group_id=name, topics=list(topics.values()))
    raise_for_errors(client.ask_coordinator("group", name, request), f"offsets of group {name!r}")
