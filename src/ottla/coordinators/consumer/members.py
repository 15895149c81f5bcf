"""One member of a consumer group: what it asked for, and how far it has come towards what it is to read.

A member is stored as two records, one for each half; the third, its target, belongs to the group.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from ottla.coordinators.consumer.assignors import Partitions
from ottla.coordinators.formats import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    CurrentPartitions,
    TargetPartitions,
)
from ottla.coordinators.machine import StoredRecord

Holding = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch at which the member got it. Never changed in place."""

NOTHING_HELD: Final[Holding] = {}

LEAVING: Final = -1
"""As epoch of a heartbeat: the member leaves for good."""
LEAVING_FOR_NOW: Final = -2
"""As epoch of a heartbeat: a static member leaves and means to come back. Stored as its epoch until it does."""


class MemberState(IntEnum):
    """How far a member has come, by the numbers of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions back before it may go on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is at the newest epoch and waits for partitions that others have to give back."""
    UNKNOWN = 127
    """Stored by a later release."""

    @classmethod
    def of(cls, number: int) -> "MemberState":
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    epoch: int = 0
    previous_epoch: int = -1
    """The last answer may have been lost: then the member still speaks of this one."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_pattern: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """There if it speaks the classic protocol."""
    assigned: Holding = field(default_factory=lambda: NOTHING_HELD)
    revoking: Holding = field(default_factory=lambda: NOTHING_HELD)
    """Told to give back and not yet given back."""

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def holds(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch at which it got the partition, if it has it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch

    def leave_for_now(self) -> "Member":
        """A static member that is gone for now keeps its place, not its epochs."""
        assigned = {topic: dict.fromkeys(numbers, 0) for topic, numbers in self.assigned.items()}
        return replace(self, epoch=LEAVING_FOR_NOW, assigned=assigned, revoking=NOTHING_HELD)

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "Member":
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_pattern=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "Member":
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_holding(value.assigned_partitions, value.member_epoch),
            revoking=_holding(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_current_assignment(self) -> "Member":
        return replace(
            self,
            epoch=LEAVING,
            previous_epoch=LEAVING,
            state=MemberState.STABLE,
            assigned=NOTHING_HELD,
            revoking=NOTHING_HELD,
        )

    def metadata_record(self, group_id: str) -> StoredRecord:
        return StoredRecord(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.id),
            ConsumerGroupMemberMetadataValue(
                instance_id=self.instance_id,
                rack_id=self.rack_id,
                client_id=self.client_id,
                client_host=self.client_host,
                subscribed_topic_names=sorted(self.topic_names),
                subscribed_topic_regex=self.topic_pattern,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                server_assignor=self.assignor,
                classic_member_metadata=self.classic,
            ),
        )

    def current_assignment_record(self, group_id: str) -> StoredRecord:
        return StoredRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=self.epoch,
                previous_member_epoch=self.previous_epoch,
                state=self.state,
                assigned_partitions=_current(self.assigned),
                partitions_pending_revocation=_current(self.revoking),
            ),
        )

    def target_record(self, group_id: str, target: Partitions) -> StoredRecord:
        return StoredRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=self.id),
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    TargetPartitions(topic_id=topic, partitions=sorted(target[topic])) for topic in sorted(target)
                ]
            ),
        )

    def tombstones(self, group_id: str) -> list[StoredRecord]:
        """What deletes it, the records that rest on others first."""
        return [
            StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.id), None),
            StoredRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=self.id), None),
            StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.id), None),
        ]


def _current(holding: Holding) -> list[CurrentPartitions]:
    rows = []
    for topic in sorted(holding):
        numbers = sorted(holding[topic])
        epochs = [holding[topic][number] for number in numbers]
        rows.append(CurrentPartitions(topic_id=topic, partitions=numbers, assignment_epochs=epochs))
    return rows


def _holding(rows: Iterable[CurrentPartitions], member_epoch: int) -> Holding:
    """Records from before Kafka 4.3 have no epoch for each partition: then the member's own stands for all."""
    found: dict[bytes, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [member_epoch] * len(row.partitions)
        if row.partitions:
            found.setdefault(row.topic_id, {}).update(zip(row.partitions, epochs, strict=True))
    return found
