"""The machine of one partition of `__consumer_offsets`: its groups and their committed offsets.

It finds or creates the group that a request is for, wakes groups when a deadline of theirs has come, replays each
record into the group or the offsets that it belongs to, and deletes expired offsets and, with the last, their group.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any

from ottla.coordinators.classic.group import ClassicGroup
from ottla.coordinators.consumer.group import ConsumerGroup
from ottla.coordinators.consumer.state import CONSUMER_KEYS, Resolution
from ottla.coordinators.formats import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.coordinators.groups.downgrade import Downgrade
from ottla.coordinators.groups.group import Group
from ottla.coordinators.machine import Caller, Outcome, ProducerIdentity, StoredRecord, Turn
from ottla.coordinators.offsets.offsets import Offsets
from ottla.coordinators.offsets.requests import OffsetRequests
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.list_groups import ListedGroup
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.messages.offset_delete import OffsetDeleteRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

RECORDS_MAX = 1_000
"""How many records one turn writes at most, roughly, to delete what has expired. The next turn goes on."""

MINUTE_MS = 60_000


class GroupMachine:
    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._offset_requests = OffsetRequests(self.groups, self.offsets)
        self._alarms: list[tuple[int, str]] = []
        self._armed: dict[str, int] = {}
        """The alarm of each group that is valid: the earliest in the heap. Later ones are ignored."""
        self._touched: dict[str, None] = {}
        """Groups whose `wake_at` may have changed in this turn."""
        self._expiry_at: int | None = None
        self._unexpired: list[str] = []
        """Groups that the search for expired offsets has not looked at yet."""

    # Members of the classic protocol

    def join_group(
        self, request: JoinGroupRequest, caller: Caller, turn: Turn, *, version: int, fresh_member_id: str
    ) -> Outcome:
        """A consumer group without members is replaced by a classic group."""
        group = self.groups.get(request.group_id)
        before = group.tombstones() if isinstance(group, ConsumerGroup) and group.is_empty else []
        if not isinstance(group, ClassicGroup | ConsumerGroup) or before:
            if request.member_id:
                raise _make_unknown_member_error(request.group_id)
            group = ClassicGroup(request.group_id)
        outcome = group.join(request, caller, turn, version=version, fresh_member_id=fresh_member_id)
        self.groups[request.group_id] = group
        self._touched[request.group_id] = None
        return Outcome.merge([Outcome(records=before), outcome]) if before else outcome

    def sync_group(self, request: SyncGroupRequest, turn: Turn) -> Outcome:
        return self._find_group_of(request.group_id).sync(request, turn)

    def heartbeat(self, request: HeartbeatRequest, turn: Turn) -> Outcome:
        return self._find_group_of(request.group_id).heartbeat(request, turn)

    def leave_group(self, request: LeaveGroupRequest, turn: Turn) -> Outcome:
        return self._find_group_of(request.group_id).leave(request, turn)

    def describe_group(self, group_id: str, turn: Turn) -> Outcome:
        """GROUP_ID_NOT_FOUND if there is no such classic group."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no classic group '{group_id}'")
        described: DescribedGroup = group.describe()
        return Outcome.answer(turn, described)

    def _find_group_of(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup | ConsumerGroup):
            raise _make_unknown_member_error(group_id)
        self._touched[group_id] = None
        return group

    # Members of the consumer protocol

    def consumer_group_heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, turn: Turn) -> Outcome:
        """The first member creates the group, or converts a classic group into a consumer group."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            outcome = group.consumer_heartbeat(group.begin_change(turn), request, caller, turn)
        elif request.member_epoch != 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group '{request.group_id}'")
        else:
            new = ConsumerGroup(request.group_id)
            change = new.begin_change(turn)
            change.effects.append(lambda: self._put(new))
            if isinstance(group, ClassicGroup) and not group.is_empty:
                new.take_over(change, group, turn)
            elif group is not None:
                change.store(*group.tombstones())
            outcome = new.consumer_heartbeat(change, request, caller, turn)
        self._touched[request.group_id] = None
        return outcome

    def _put(self, group: Group) -> None:
        self.groups[group.id] = group

    def describe_consumer_group(self, group_id: str, turn: Turn) -> Outcome:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group '{group_id}'")
        return Outcome.answer(turn, group.describe(turn))

    def store_found_topics(self, group_id: str, found: Mapping[str, Resolution], turn: Turn) -> Outcome:
        """Take the result of a topic search: the topics that each pattern of a group matches."""
        group = self.groups.get(group_id)
        return group.store_found_topics(found, turn) if isinstance(group, ConsumerGroup) else Outcome()

    def begin_classic_group(self, downgrade: Downgrade, turn: Turn) -> Outcome:
        """Start the sessions of a group that became a classic group in the last turn."""
        group = self.groups.get(downgrade.group_id)
        if not isinstance(group, ClassicGroup) or group.is_empty:
            return Outcome()
        self._touched[group.id] = None
        outcome = group.finish_loading(turn)
        if not downgrade.needs_rebalance:
            return outcome
        return Outcome.merge([outcome, group.rebalance(turn, "the consumer group became a classic group")])

    # Offsets

    def commit_offsets(self, request: OffsetCommitRequest, turn: Turn, *, version: int) -> Outcome:
        self._touched[request.group_id] = None
        return self._offset_requests.commit(request, turn, version)

    def commit_transactional_offsets(self, request: TxnOffsetCommitRequest, turn: Turn) -> Outcome:
        self._touched[request.group_id] = None
        return self._offset_requests.commit_in_transaction(request, turn)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, turn: Turn, *, version: int, require_stable: bool
    ) -> Outcome:
        return self._offset_requests.fetch(request, turn, version, require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, turn: Turn) -> Outcome:
        return self._offset_requests.delete(request, turn)

    def delete_offsets_of_topics(self, topics: Iterable[str], turn: Turn) -> Outcome:
        """Delete the offsets of deleted topics, so that a new topic of the same name does not inherit them."""
        gone = set(topics)
        groups = dict.fromkeys(
            group_id for topic in sorted(gone) for group_id in self.offsets.find_groups_of_topic(topic)
        )
        records: list[StoredRecord] = []
        for group_id in groups:
            offsets = self.offsets.find_group(group_id)
            if offsets is not None:
                deleted = [each for each in offsets.partitions() if each.topic in gone]
                records += self.offsets.tombstones(group_id, deleted)
        turn.meters.groups.offsets_deleted += len(records)
        return Outcome(records=records)

    # All groups

    def list_groups(self, states: Iterable[str], types: Iterable[str], turn: Turn) -> Outcome:
        """List groups in these states and of these types, ignoring case. An empty filter accepts all."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {name.lower() for name in types}
        listed = [
            ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in self.groups.values()
            if (not wanted_states or group.state_name.lower() in wanted_states)
            and (not wanted_types or group.kind in wanted_types)
        ]
        return Outcome.answer(turn, listed)

    def delete_group(self, group_id: str, turn: Turn) -> Outcome:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{group_id}'")
        group.check_delete()
        offsets = self.offsets.tombstones(group_id)
        turn.meters.groups.offsets_deleted += len(offsets)
        records = offsets + group.tombstones()
        return Outcome.answer(turn, DeletableGroupResult(group_id=group_id), records, may_be_refused=True)

    # Time

    @property
    def wake_at(self) -> int | None:
        for group_id in self._touched:
            self._arm(group_id)
        self._touched.clear()
        nearest = self._alarms[0][0] if self._alarms else None
        if nearest is None or self._expiry_at is None:
            return self._expiry_at if nearest is None else nearest
        return min(nearest, self._expiry_at)

    def wake(self, turn: Turn) -> Outcome:
        outcomes = []
        while self._alarms and self._alarms[0][0] <= turn.monotonic_ms:
            alarm, group_id = heappop(self._alarms)
            if self._armed.get(group_id) != alarm:
                continue
            del self._armed[group_id]
            self._touched[group_id] = None
            group = self.groups.get(group_id)
            if group is not None and group.wake_at is not None and group.wake_at <= turn.monotonic_ms:
                outcomes.append(group.wake(turn))
        if self._expiry_at is not None and self._expiry_at <= turn.monotonic_ms:
            outcomes.append(Outcome(records=self._delete_expired(turn)))
        return Outcome.merge(outcomes)

    def _arm(self, group_id: str) -> None:
        """Set an alarm for when the group wants to be woken. If that is later than the alarm there is, the alarm stays:
        when it fires and nothing is due, it is set again."""
        group = self.groups.get(group_id)
        wake_at = group.wake_at if group is not None else None
        armed = self._armed.get(group_id)
        if wake_at is not None and (armed is None or wake_at < armed):
            self._armed[group_id] = wake_at
            heappush(self._alarms, (wake_at, group_id))

    # Expiry

    def _delete_expired(self, turn: Turn) -> list[StoredRecord]:
        """Tombstones of expired offsets and groups, a limited number at a time. Sets when to search again."""
        if not self._unexpired:
            self._unexpired = list(self.groups)
        records: list[StoredRecord] = []
        while self._unexpired and len(records) < RECORDS_MAX:
            group = self.groups.get(self._unexpired.pop())
            if group is not None:
                records += self._delete_expired_of(group, turn)
        interval_ms = 0 if self._unexpired else turn.config.offsets_retention_check_interval_ms
        self._expiry_at = turn.monotonic_ms + interval_ms
        return records

    def _delete_expired_of(self, group: Group, turn: Turn) -> list[StoredRecord]:
        offsets = self.offsets.find_group(group.id)
        expired = []
        kept = 0
        if offsets is not None:
            kept = len(offsets.pending)
            for topic, partitions in offsets.by_topic.items():
                subscribed = group.is_subscribed_to(topic)
                for partition, committed in partitions.items():
                    pending = (topic, partition) in offsets.pending
                    if not subscribed and not pending and _has_expired(group, committed.value, turn):
                        expired.append(TopicPartition(topic, partition))
                    else:
                        kept += 1
        records = self.offsets.tombstones(group.id, expired)
        turn.meters.groups.offsets_expired += len(records)
        if not kept and group.is_empty:
            records += group.tombstones()
        return records

    # The log

    def replay(self, record: StoredRecord, written_ms: int, producer: ProducerIdentity | None) -> None:
        key: Any = record.key
        value: Any = record.value
        if type(key) in CONSUMER_KEYS:
            self._replay_consumer(record, key.group_id)
        else:
            _REPLAYS[type(key)](self, key, value, producer)

    def _replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer: ProducerIdentity | None
    ) -> None:
        self.offsets.replay(key, value, None if producer is None else producer.id)
        if value is not None and key.group_id not in self.groups:
            self.groups[key.group_id] = ClassicGroup(key.group_id)

    def _replay_classic(self, key: GroupMetadataKey, value: Any, producer: ProducerIdentity | None) -> None:
        group = self.groups.get(key.group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[key.group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[key.group_id] = ClassicGroup(key.group_id)
        group.replay_metadata(value)
        self._touched[key.group_id] = None

    def _replay_consumer(self, record: StoredRecord, group_id: str) -> None:
        """The tombstone of the group's own record comes last and deletes the group. Tombstones after it are ignored:
        the group that they belonged to is gone."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        if record.value is None and type(record.key) is ConsumerGroupMetadataKey:
            del self.groups[group_id]
        else:
            group.replay(record)

    def end_transaction(self, producer: ProducerIdentity, committed: bool) -> None:
        self.offsets.end_transaction(producer.id, committed)

    def finish_loading(self, turn: Turn) -> Outcome:
        self._expiry_at = turn.monotonic_ms + turn.config.offsets_retention_check_interval_ms
        inhabited = [group for group in self.groups.values() if not group.is_empty]  # most groups only keep offsets
        self._touched = dict.fromkeys(group.id for group in inhabited)
        return Outcome.merge([group.finish_loading(turn) for group in inhabited])


_REPLAYS: dict[type, Callable[[GroupMachine, Any, Any, ProducerIdentity | None], None]] = {
    OffsetCommitKey: GroupMachine._replay_offset,
    GroupMetadataKey: GroupMachine._replay_classic,
}


def _has_expired(group: Group, value: OffsetCommitValue, turn: Turn) -> bool:
    begun_ms = group.find_expiry_start(value.commit_timestamp)
    if begun_ms is None:
        return False
    if value.expire_timestamp >= 0:
        return turn.wall_ms >= value.expire_timestamp
    return turn.wall_ms - begun_ms >= turn.config.offsets_retention_minutes * MINUTE_MS


def _make_unknown_member_error(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group '{group_id}'")
