"""One member of a consumer group: its subscription, and its current assignment on the way to the target.

Each of the two is a record of its own. A third record, the member's target assignment, is part of the group's state.
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
"""Partitions by topic id, each with the epoch in which the member got it. Never mutated."""

NOTHING_HELD: Final[Holding] = {}

LEAVING: Final = -1
"""The epoch of a heartbeat with which a member leaves."""
LEAVING_FOR_NOW: Final = -2
"""The epoch of a heartbeat with which a static member leaves and will come back. It is stored until then."""


class MemberState(IntEnum):
    """How far a member is on its way to its target, with the numbers of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has to give up partitions before it may reach the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member is at the latest epoch and waits for partitions that other members have to give up."""
    UNKNOWN = 127
    """A state that a later release has stored."""

    @classmethod
    def of(cls, number: int) -> "MemberState":
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    epoch: int = 0
    previous_epoch: int = -1
    """A member that missed the last response still sends this epoch."""
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
    """Set if the member uses the classic protocol."""
    assigned: Holding = field(default_factory=lambda: NOTHING_HELD)
    revoking: Holding = field(default_factory=lambda: NOTHING_HELD)
    """Partitions that the member was asked to give up and may still read."""

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def find_assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the member got the partition; None if it does not have it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch

    def leave_for_now(self) -> "Member":
        """A static member that left and will come back: it keeps its partitions, not its epochs."""
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
            assigned=_read_holding(value.assigned_partitions, value.member_epoch),
            revoking=_read_holding(value.partitions_pending_revocation, value.member_epoch),
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
                assigned_partitions=_write_holding(self.assigned),
                partitions_pending_revocation=_write_holding(self.revoking),
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
        """Records that delete the member; those that depend on others come first."""
        return [
            StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.id), None),
            StoredRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=self.id), None),
            StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.id), None),
        ]


def _write_holding(holding: Holding) -> list[CurrentPartitions]:
    rows = []
    for topic in sorted(holding):
        numbers = sorted(holding[topic])
        epochs = [holding[topic][number] for number in numbers]
        rows.append(CurrentPartitions(topic_id=topic, partitions=numbers, assignment_epochs=epochs))
    return rows


def _read_holding(rows: Iterable[CurrentPartitions], member_epoch: int) -> Holding:
    """Records from before Kafka 4.3 have no epoch for each partition: all get the member's epoch."""
    found: dict[bytes, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [member_epoch] * len(row.partitions)
        if row.partitions:
            found.setdefault(row.topic_id, {}).update(zip(row.partitions, epochs, strict=True))
    return found
