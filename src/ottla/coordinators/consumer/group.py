"""A group of the consumer protocol (KIP-848): members send heartbeats, and the coordinator assigns partitions to them.

Members never wait for each other. Each heartbeat moves one member a step towards the target assignment that the group's
assignor computed. The member's epoch says which target it has reached; a heartbeat with another epoch is fenced. The
group may have members of the classic protocol too (`classic_members`), and it may be converted from and to a classic
group (`upgrade` and `downgrade` in `groups`).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from ottla.coordinators.classic.group import ClassicGroup
from ottla.coordinators.consumer.assignors import Partitions
from ottla.coordinators.consumer.classic_members import ClassicMembers
from ottla.coordinators.consumer.descriptions import describe, find_state
from ottla.coordinators.consumer.identities import (
    check_epoch,
    check_room,
    find_identified_member,
    find_member,
    replace_member,
)
from ottla.coordinators.consumer.members import LEAVING, LEAVING_FOR_NOW, Member
from ottla.coordinators.consumer.rebalance import ConsumerRebalance
from ottla.coordinators.consumer.state import GroupChange, GroupState, Resolution
from ottla.coordinators.consumer.topic_searches import store_resolutions
from ottla.coordinators.groups.consumer_protocol import PROTOCOL_TYPE
from ottla.coordinators.groups.downgrade import Downgrade, build_downgrade_records, may_downgrade
from ottla.coordinators.groups.group import PartitionCheck
from ottla.coordinators.groups.sessions import Sessions
from ottla.coordinators.groups.upgrade import build_upgrade_records
from ottla.coordinators.machine import NOTHING, Caller, Outcome, StoredRecord, Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.logs import fields
from ottla.wire.messages.consumer_group_describe import DescribedGroup
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)

COMMIT_BY_EPOCH_FROM = 9
"""The version of OffsetCommit from which a member epoch can be sent."""


class ConsumerGroup:
    __slots__ = ("_classic", "_rebalance", "_sessions", "id", "state")

    kind: Literal["consumer"] = "consumer"
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.state = GroupState(group_id)
        self._sessions = Sessions()
        self._rebalance = ConsumerRebalance()
        self._classic = ClassicMembers(self._sessions, self._rebalance)

    # --- description ---

    @property
    def state_name(self) -> str:
        return find_state(self.state).value

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def size(self) -> int:
        return len(self.state.members)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.state.is_subscribed_to(topic)

    def describe(self, turn: Turn) -> DescribedGroup:
        return describe(self.state, turn)

    # --- heartbeats ---

    def begin_change(self, turn: Turn) -> GroupChange:
        return GroupChange(self.state, turn)

    def consumer_heartbeat(
        self, change: GroupChange, request: ConsumerGroupHeartbeatRequest, caller: Caller, turn: Turn
    ) -> Outcome:
        """`change` may already hold the records that convert a classic group into this one."""
        if request.member_epoch in (LEAVING, LEAVING_FOR_NOW):
            return self._leave(change, request, turn)
        check_room(change.state, request.member_id, request.instance_id, turn.config.group_consumer_max_size)
        owned = _read_owned(request)
        before = self._identify(change, request, owned)
        member = _update_member(before, request, caller)
        subscribed = self._rebalance.subscribe(change, before, member, turn, caller.sight)
        self._rebalance.assign(change, turn)
        moved = self._rebalance.reconcile(change, member.id, owned, subscribed.is_changed, turn)
        session_ms = turn.find_group_setting(self.id, "consumer.session.timeout.ms")
        change.effects += (
            partial(self._classic.forget, member.id),
            partial(self._sessions.renew, member.id, turn.monotonic_ms + session_ms),
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=moved.id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=turn.find_group_setting(self.id, "consumer.heartbeat.interval.ms"),
        )
        if request.member_epoch == 0 or _is_full(request) or moved.assigned != before.assigned:
            response.assignment = _build_assignment(moved)
        change.reply(turn.ticket, response)
        if subscribed.search is not None:
            change.request(subscribed.search)
        return change.build()

    def _identify(
        self, change: GroupChange, request: ConsumerGroupHeartbeatRequest, owned: Partitions | None
    ) -> Member:
        """The member before this request. A new member has no fields but its id."""
        if request.member_epoch != 0:
            member = find_identified_member(change.state, request.member_id, request.instance_id)
            check_epoch(member, request.member_epoch, owned)
            return member
        static = None if request.instance_id is None else change.state.find_instance(request.instance_id)
        if static is None or static.id == request.member_id:
            return change.state.members.get(request.member_id) or Member(request.member_id)
        if static.classic is None and static.epoch != LEAVING_FOR_NOW:
            message = f"instance id {request.instance_id!r} is still used by member {static.id!r}"
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        return replace_member(change, static, request.member_id)

    def _leave(self, change: GroupChange, request: ConsumerGroupHeartbeatRequest, turn: Turn) -> Outcome:
        member = find_identified_member(change.state, request.member_id, request.instance_id)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEAVING_FOR_NOW:
            change.store(member.leave_for_now().current_assignment_record(self.id))
            change.effects.append(partial(self._rebalance.revocations.end, member.id))
        else:
            self.dismiss(change, [member], turn, "left the group")
        change.reply(turn.ticket, response)
        return change.build()

    def dismiss(self, change: GroupChange, members: Sequence[Member], turn: Turn, reason: str) -> None:
        """Remove members from the group, and raise its epoch, so that their partitions are assigned to others."""
        for member in members:
            logger.info(
                "a member was removed from the group",
                extra=fields(group=self.id, member=member.id, instance=member.instance_id, reason=reason),
            )
        leaving = {member.id for member in members}
        if may_downgrade(change.state, leaving, turn):
            change.store_conversion(build_downgrade_records(change.state, leaving, turn))
            change.request(Downgrade(self.id, needs_rebalance=True))
            return
        for member in members:
            change.store(*member.tombstones(self.id))
        for pattern in sorted({member.topic_pattern for member in members}):
            if pattern in change.state.resolutions and pattern not in change.state.patterns:
                change.store(change.state.resolution_record(pattern, None))
        self._rebalance.raise_epoch(change, turn, bump=True)

    def store_found_topics(self, found: Mapping[str, Resolution], turn: Turn) -> Outcome:
        """Take the result of a topic search: the topics that each pattern of this group matches."""
        self._rebalance.searches.end()
        change = self.begin_change(turn)
        news = store_resolutions(change, found)
        self._rebalance.raise_epoch(change, turn, bump=news)
        return change.build()

    # --- members of the classic protocol ---

    def join(
        self, request: JoinGroupRequest, caller: Caller, turn: Turn, *, version: int, fresh_member_id: str
    ) -> Outcome:
        change = self.begin_change(turn)
        return self._classic.join(change, request, caller, turn, version=version, fresh_member_id=fresh_member_id)

    def sync(self, request: SyncGroupRequest, turn: Turn) -> Outcome:
        return self._classic.sync(self.state, request, turn)

    def heartbeat(self, request: HeartbeatRequest, turn: Turn) -> Outcome:
        return self._classic.heartbeat(self.state, request, turn)

    def leave(self, request: LeaveGroupRequest, turn: Turn) -> Outcome:
        members, response = self._classic.find_leavers(self.state, request)
        change = self.begin_change(turn)
        if members:
            self.dismiss(change, members, turn, "left the group")
        change.reply(turn.ticket, response)
        return change.build()

    def take_over(self, change: GroupChange, group: ClassicGroup, turn: Turn) -> None:
        """Take over the members of a classic group. Members that wait for a reply of that group are told to join
        again."""

        def begin_sessions() -> None:
            for member in group.members:
                self._sessions.renew(member.id, turn.monotonic_ms + member.session_timeout_ms)
            group.dissolve(change, ErrorCode.REBALANCE_IN_PROGRESS)

        change.store(*build_upgrade_records(group, turn))
        change.effects.append(begin_sessions)

    # --- offsets ---

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, turn: Turn, *, api_version: int
    ) -> PartitionCheck | None:
        """A member with an older epoch may commit partitions that it had in that epoch and still has. The check that is
        returned then decides for each partition."""
        if generation < 0 and self.is_empty:
            return None
        member = find_member(self.state, member_id)
        if member.classic is None and api_version < COMMIT_BY_EPOCH_FROM:
            message = f"members of consumer groups must use OffsetCommit version {COMMIT_BY_EPOCH_FROM} or above"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        return _build_commit_check(member, generation, ErrorCode.STALE_MEMBER_EPOCH)

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int, turn: Turn
    ) -> PartitionCheck | None:
        """Producers before KIP-447 name no member, and no producer knows the errors of member epochs."""
        if generation < 0 and (self.is_empty or (not member_id and instance_id is None)):
            return None
        return _build_commit_check(find_member(self.state, member_id), generation, ErrorCode.ILLEGAL_GENERATION)

    def check_fetch(self, member_id: str, member_epoch: int, turn: Turn) -> None:
        if not member_id and member_epoch < 0:
            return
        member = find_member(self.state, member_id)
        if member_epoch != member.epoch:
            code = _translate_code(member, ErrorCode.STALE_MEMBER_EPOCH)
            raise KafkaError(code, f"the member is at epoch {member.epoch}, not {member_epoch}")

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group has members: it is {self.state_name}")

    def check_delete_offsets(self) -> None:
        """Allows it for every group: `is_subscribed_to` decides for each topic."""

    def find_expiry_start(self, committed_ms: int) -> int | None:
        """Offsets of topics that the group does not subscribe to expire, even if it has members."""
        return committed_ms

    # --- time ---

    @property
    def wake_at(self) -> int | None:
        times = (self._sessions.next, self._rebalance.revocations.next, self._classic.wake_at)
        return min((time for time in times if time is not None), default=None)

    def wake(self, turn: Turn) -> Outcome:
        late: dict[str, str] = {}
        now = turn.monotonic_ms
        for reason, ids in (
            ("did not give up its partitions in time", self._rebalance.revocations.take_expired(now)),
            ("did not join or sync in time", self._classic.take_expired(now)),
            ("its session timed out", self._sessions.take_expired(now)),
        ):
            late.update(dict.fromkeys(ids, reason))
        members = [self.state.members[id] for id in sorted(late) if id in self.state.members]
        if not members:
            return NOTHING
        change = self.begin_change(turn)
        change.may_be_refused = False  # their deadlines are gone: after a refusal nothing would ever remove them
        self.dismiss(change, members, turn, "; ".join(sorted(set(late.values()))))
        return change.build()

    # --- the log ---

    def replay(self, record: StoredRecord) -> None:
        before = self.state.members
        self.state = self.state.replay(record)
        if len(self.state.members) < len(before):
            member_id = record.key.member_id  # type: ignore[attr-defined]
            self._sessions.end(member_id)
            self._rebalance.revocations.end(member_id)
            self._classic.forget(member_id)

    def finish_loading(self, turn: Turn) -> Outcome:
        """Start the sessions of all members, and the time-outs of those that have to give up partitions."""
        for member in self.state.members_by_id():
            timeout_ms = turn.find_group_setting(self.id, "consumer.session.timeout.ms")
            if member.classic is not None:
                timeout_ms = member.classic.session_timeout_ms
            self._sessions.renew(member.id, turn.monotonic_ms + timeout_ms)
            self._rebalance.watch_revocation(member, turn)
        return NOTHING

    def tombstones(self) -> list[StoredRecord]:
        return self.state.tombstones()


def _build_commit_check(member: Member, epoch: int, code: ErrorCode) -> PartitionCheck | None:
    code = _translate_code(member, code)
    if epoch == member.epoch:
        return None
    if epoch > member.epoch:
        raise KafkaError(code, f"epoch {epoch} is above the member's epoch, {member.epoch}")

    def check(topic_id: bytes, partition: int) -> None:
        since = member.find_assignment_epoch(topic_id, partition)
        if since is None:
            raise KafkaError(code, f"the member, now at epoch {member.epoch}, no longer has this partition")
        if epoch < since:
            raise KafkaError(code, f"the member got this partition at epoch {since}, after epoch {epoch}")

    return check


def _translate_code(member: Member, code: ErrorCode) -> ErrorCode:
    """Members of the classic protocol know their epoch as a generation."""
    return code if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _update_member(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """The member with the fields of the request. Fields that the request leaves out stay as they are."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_pattern=member.topic_pattern if pattern is None else pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields, as after an error: then the client may not know its assignment."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms >= 0 and subscribes and request.topic_partitions is not None


def _read_owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """The partitions that the member owns, or None if the request does not say."""
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for row in request.topic_partitions:
        if row.partitions:
            owned[row.topic_id] = owned.get(row.topic_id, frozenset()) | frozenset(row.partitions)
    return owned


def _build_assignment(member: Member) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic, partitions=sorted(member.assigned[topic]))
            for topic in sorted(member.assigned)
        ]
    )
