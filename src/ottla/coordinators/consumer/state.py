"""The stored state of one consumer group. It is immutable, and changes by replay only.

Replaying a record returns the next state and leaves this one as it is. So a turn can replay the records that it is
about to store into a state of its own (`GroupChange`) and see what they lead to. A turn that is refused changes
nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from immutables import Map

from ottla.cluster.image import Image
from ottla.coordinators.consumer.assignors import NO_PARTITIONS, Partitions
from ottla.coordinators.consumer.members import Holding, Member
from ottla.coordinators.formats import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.coordinators.machine import StoredRecord, Turn
from ottla.coordinators.outcome_builder import OutcomeBuilder
from ottla.topic_partition import TopicIdPartition
from ottla.wire.message import Message


class Resolution(NamedTuple):
    """The topics that a pattern matches, as of a metadata version and a time."""

    topics: frozenset[str]
    version: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class GroupState:
    id: str
    epoch: int = 1
    """Rises with every change that needs a new target assignment."""
    metadata_hash: int = 0
    """Hash of the subscribed topics when the epoch was raised the last time."""
    target_epoch: int = 0
    """The epoch for which the target assignment was computed."""
    assigned_ms: int = 0
    members: Map[str, Member] = field(default_factory=Map)
    targets: Map[str, Partitions] = field(default_factory=Map)
    """The target assignment, by member id."""
    instances: Map[str, str] = field(default_factory=Map)
    """The member id that belongs to each instance id."""
    owners: Map[TopicIdPartition, str] = field(default_factory=Map)
    """The member that has each partition, or has not given it up yet."""
    names: Map[str, int] = field(default_factory=Map)
    """How many members subscribe to each topic by name."""
    patterns: Map[str, int] = field(default_factory=Map)
    """How many members subscribe with each pattern."""
    resolutions: Map[str, Resolution] = field(default_factory=Map)
    """The topics that each pattern matches."""
    classic_members: int = 0
    """The number of members that use the classic protocol."""
    has_partition_metadata: bool = False
    """Whether the log has a record of Kafka before 4.1 that is not needed and should be deleted."""

    def replay(self, record: StoredRecord) -> "GroupState":
        return _REPLAYS[type(record.key)](self, record.key, record.value)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def find_instance(self, instance_id: str) -> Member | None:
        id = self.instances.get(instance_id)
        return None if id is None else self.members.get(id)

    def members_by_id(self) -> list[Member]:
        return [self.members[id] for id in sorted(self.members)]

    @property
    def is_settled(self) -> bool:
        """Whether every member has reached the target of the group's epoch."""
        return self.target_epoch >= self.epoch and all(
            member.is_reconciled_to(self.target_epoch) for member in self.members.values()
        )

    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that members subscribe to, by name or by pattern."""
        found = set(self.names)
        for pattern in self.patterns:
            if pattern in self.resolutions:
                found |= self.resolutions[pattern].topics
        return frozenset(found)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names or any(
            topic in self.resolutions[pattern].topics for pattern in self.patterns if pattern in self.resolutions
        )

    def topic_ids(self, member: Member, image: Image) -> frozenset[bytes]:
        """The existing topics that a member subscribes to. A pattern that has not been searched for yet has none."""
        names: Iterable[str] = member.topic_names
        if member.topic_pattern in self.resolutions:
            names = member.topic_names | self.resolutions[member.topic_pattern].topics
        return frozenset(topic.id for name in names if (topic := image.topic(name)) is not None)

    def with_member(self, before: Member | None, after: Member | None) -> "GroupState":
        """The state after a member was added (`before` is None), changed or removed (`after` is None)."""
        member = after or before
        assert member is not None
        members = self.members.delete(member.id) if after is None else self.members.set(member.id, after)
        return replace(
            self,
            members=members,
            instances=_update_instances(self.instances, before, after),
            owners=self.owners if _has_same_partitions(before, after) else _update_owners(self.owners, before, after),
            names=_recount(
                self.names, before.topic_names if before else frozenset(), after.topic_names if after else frozenset()
            ),
            patterns=_recount(self.patterns, _list_patterns(before), _list_patterns(after)),
            classic_members=self.classic_members + _is_classic(after) - _is_classic(before),
        )

    def epoch_record(self, epoch: int, metadata_hash: int) -> StoredRecord:
        return StoredRecord(
            ConsumerGroupMetadataKey(group_id=self.id),
            ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
        )

    def target_epoch_record(self, epoch: int, wall_ms: int) -> StoredRecord:
        return StoredRecord(
            ConsumerGroupTargetAssignmentMetadataKey(group_id=self.id),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms),
        )

    def resolution_record(self, pattern: str, resolution: Resolution | None) -> StoredRecord:
        value = None
        if resolution is not None:
            value = ConsumerGroupRegularExpressionValue(
                topics=sorted(resolution.topics), version=resolution.version, timestamp=resolution.wall_ms
            )
        return StoredRecord(ConsumerGroupRegularExpressionKey(group_id=self.id, regular_expression=pattern), value)

    def partition_metadata_tombstone(self) -> StoredRecord:
        return StoredRecord(ConsumerGroupPartitionMetadataKey(group_id=self.id), None)

    def tombstones(self) -> list[StoredRecord]:
        """Records that delete the group with its members. The group's own record comes last."""
        records = [record for member in self.members_by_id() for record in member.tombstones(self.id)]
        records.append(StoredRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=self.id), None))
        records.extend(self.resolution_record(pattern, None) for pattern in sorted(self.resolutions))
        records.append(self.partition_metadata_tombstone())
        records.append(StoredRecord(ConsumerGroupMetadataKey(group_id=self.id), None))
        return records


class GroupChange(OutcomeBuilder):
    """The outcome of a turn of a consumer group, together with the state that its records lead to.

    A consumer group changes nothing but by records and effects, so an outcome that is too large for the log may be
    refused: the group stays as it was.
    """

    __slots__ = ("state",)

    def __init__(self, state: GroupState, turn: Turn) -> None:
        super().__init__(turn)
        self.state = state
        self.may_be_refused = True

    def store(self, *records: StoredRecord) -> None:
        """Store records. Those of a classic group that this group replaces do not change its state."""
        for record in records:
            self.records.append(record)
            if type(record.key) in CONSUMER_KEYS:
                self.state = self.state.replay(record)

    def store_conversion(self, records: Iterable[StoredRecord]) -> None:
        """Store records that convert this group to a classic group. Its own state is not needed any more."""
        self.records.extend(records)


def _replay_epoch(
    state: GroupState, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> GroupState:
    value = value or ConsumerGroupMetadataValue(epoch=1)
    return replace(state, epoch=value.epoch, metadata_hash=value.metadata_hash)


def _replay_partition_metadata(
    state: GroupState, key: ConsumerGroupPartitionMetadataKey, value: Message | None
) -> GroupState:
    return replace(state, has_partition_metadata=value is not None)


def _replay_member(
    state: GroupState, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> GroupState:
    before = state.members.get(key.member_id)
    if value is None:
        return state if before is None else state.with_member(before, None)
    return state.with_member(before, (before or Member(key.member_id)).with_metadata(value))


def _replay_current_assignment(
    state: GroupState,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> GroupState:
    before = state.members.get(key.member_id)
    if value is None:
        return state if before is None else state.with_member(before, before.without_current_assignment())
    return state.with_member(before, (before or Member(key.member_id)).with_current_assignment(value))


def _replay_target_epoch(
    state: GroupState,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> GroupState:
    value = value or ConsumerGroupTargetAssignmentMetadataValue()
    return replace(state, target_epoch=value.assignment_epoch, assigned_ms=value.assignment_timestamp)


def _replay_target(
    state: GroupState,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> GroupState:
    if value is None:
        known = key.member_id in state.targets
        return replace(state, targets=state.targets.delete(key.member_id)) if known else state
    target = {row.topic_id: frozenset(row.partitions) for row in value.topic_partitions if row.partitions}
    return replace(state, targets=state.targets.set(key.member_id, target))


def _replay_resolution(
    state: GroupState, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> GroupState:
    pattern = key.regular_expression
    if value is None:
        known = pattern in state.resolutions
        return replace(state, resolutions=state.resolutions.delete(pattern)) if known else state
    resolution = Resolution(frozenset(value.topics), value.version, value.timestamp)
    return replace(state, resolutions=state.resolutions.set(pattern, resolution))


_REPLAYS: Final[Mapping[type[Message], Callable[[GroupState, Any, Any], GroupState]]] = {
    ConsumerGroupMetadataKey: _replay_epoch,
    ConsumerGroupPartitionMetadataKey: _replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: _replay_member,
    ConsumerGroupCurrentMemberAssignmentKey: _replay_current_assignment,
    ConsumerGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _replay_target,
    ConsumerGroupRegularExpressionKey: _replay_resolution,
}

CONSUMER_KEYS: Final = frozenset(_REPLAYS)
"""The key classes of the records of a consumer group."""


def _update_owners(owners: Map[TopicIdPartition, str], before: Member | None, after: Member | None) -> Map[Any, str]:
    """A partition that another member has got meanwhile stays with it, whatever the order of a compacted log."""
    old, new = _list_partitions(before), _list_partitions(after)
    if old == new:
        return owners
    member = after or before
    assert member is not None
    draft = owners.mutate()
    for partition in old - new:
        if draft.get(partition) == member.id:
            del draft[partition]
    for partition in new - old:
        draft[partition] = member.id
    return draft.finish()


def _update_instances(instances: Map[str, str], before: Member | None, after: Member | None) -> Map[str, str]:
    """An instance id that another member has got meanwhile stays with it."""
    old = None if before is None else before.instance_id
    new = None if after is None else after.instance_id
    if old == new:
        return instances
    if before is not None and old is not None and instances.get(old) == before.id:
        instances = instances.delete(old)
    return instances if after is None or new is None else instances.set(new, after.id)


def _has_same_partitions(before: Member | None, after: Member | None) -> bool:
    if before is None or after is None:
        return False
    return before.assigned is after.assigned and before.revoking is after.revoking


def _list_partitions(member: Member | None) -> set[TopicIdPartition]:
    if member is None:
        return set()
    return _flatten(member.assigned) | _flatten(member.revoking)


def _flatten(holding: Holding) -> set[TopicIdPartition]:
    return {(topic, number) for topic, numbers in holding.items() for number in numbers}


def _list_patterns(member: Member | None) -> frozenset[str]:
    return frozenset((member.topic_pattern,)) if member is not None and member.topic_pattern else frozenset()


def _is_classic(member: Member | None) -> bool:
    return member is not None and member.classic is not None


def _recount(counts: Map[str, int], before: frozenset[str], after: frozenset[str]) -> Map[str, int]:
    if before == after:
        return counts
    draft = counts.mutate()
    for name in before - after:
        if draft[name] == 1:
            del draft[name]
        else:
            draft[name] -= 1
    for name in after - before:
        draft[name] = draft.get(name, 0) + 1
    return draft.finish()
