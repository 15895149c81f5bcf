"""A group of the classic protocol: members join, their leader assigns partitions, heartbeats keep the members alive.

The group decides about JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and about who may commit offsets. `rebalance`
has the way from one generation to the next. The replies to JoinGroup and SyncGroup come in a later turn, when all
members have joined or the leader has assigned. A group that only stores offsets is a classic group without members or
protocol.
"""

from typing import Literal

from ottla.coordinators.classic.joins import JoinAttempt, Joins, format_reasons, unknown_member
from ottla.coordinators.classic.members import Member, Roster, read_protocols
from ottla.coordinators.classic.rebalance import Rebalance
from ottla.coordinators.classic.states import ClassicState
from ottla.coordinators.classic.subscriptions import CONSUMER, TopicSubscriptions
from ottla.coordinators.formats import GroupMetadataKey, GroupMetadataValue
from ottla.coordinators.machine import Caller, Outcome, StoredRecord, Turn
from ottla.coordinators.outcome_builder import OutcomeBuilder
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicGroup:
    __slots__ = ("_joins", "_rebalance", "_subscriptions", "id")

    kind: Literal["classic"] = "classic"

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self._rebalance = Rebalance(group_id)
        self._joins = Joins(self._rebalance)
        self._subscriptions = TopicSubscriptions(self._rebalance)

    # --- description ---

    @property
    def state(self) -> ClassicState:
        return self._rebalance.state

    @property
    def state_name(self) -> str:
        return self._rebalance.state.value

    @property
    def generation(self) -> int:
        return self._rebalance.generation

    @property
    def protocol_type(self) -> str:
        return self._rebalance.protocol_type or ""

    @property
    def protocol(self) -> str | None:
        """The protocol that was chosen for this generation; for consumers that is the name of an assignor."""
        return self._rebalance.protocol

    @property
    def members(self) -> Roster:
        return self._rebalance.roster

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def is_simple(self) -> bool:
        """Whether the group only stores offsets."""
        return self.is_empty and self._rebalance.protocol_type is None and not self.members.pending

    @property
    def uses_consumer_protocol(self) -> bool:
        return self._rebalance.protocol_type == CONSUMER

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic. A group whose subscriptions cannot be read counts as subscribed."""
        if not self.uses_consumer_protocol:
            return False
        topics = self._subscriptions.find_topics()
        return topics is None or topic in topics

    def find_expiry_start(self, committed_ms: int) -> int | None:
        """When the retention time of an offset that was committed at `committed_ms` began. None: it has not begun.

        This is called only for topics that the group does not subscribe to: offsets of the others do not expire.
        """
        if self._rebalance.protocol_type is None:
            return committed_ms
        if self.is_empty:
            since_ms = self._rebalance.state_since_ms
            return since_ms if since_ms >= 0 else committed_ms
        if self.state is ClassicState.STABLE and self.uses_consumer_protocol:
            return committed_ms if self._subscriptions.find_topics() is not None else None
        return None

    def describe(self) -> DescribedGroup:
        """The members' metadata is shown only while the group is stable: in other states the protocol may change."""
        protocol = self.protocol if self.state is ClassicState.STABLE else None
        return DescribedGroup(
            group_id=self.id,
            group_state=self.state_name,
            protocol_type=self.protocol_type,
            protocol_data=protocol or "",
            members=[member.describe(protocol) for member in self.members],
        )

    # --- requests ---

    def join(
        self, request: JoinGroupRequest, caller: Caller, turn: Turn, *, version: int, fresh_member_id: str
    ) -> Outcome:
        """`fresh_member_id` becomes the id of a member that has none yet."""
        attempt = JoinAttempt(request, read_protocols(request.protocols), caller, version, fresh_member_id)
        return self._joins.join(attempt, turn)

    def sync(self, request: SyncGroupRequest, turn: Turn) -> Outcome:
        rebalance = self._rebalance
        member = self._find_member(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        for given, chosen in (
            (request.protocol_type, rebalance.protocol_type),
            (request.protocol_name, rebalance.protocol),
        ):
            if given is not None and chosen is not None and given != chosen:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group has chosen {chosen!r}, not {given!r}"
                )
        if self.state is ClassicState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing: join again")
        outcome = OutcomeBuilder(turn)
        rebalance.mark_synced(member)
        if self.state is ClassicState.STABLE:
            outcome.reply(turn.ticket, rebalance.build_sync_response(member.assignment))
            return outcome.build()
        outcome.may_be_refused = True  # then the group keeps waiting for an assignment that fits into the log
        rebalance.await_sync(outcome, member, turn.ticket)
        if member is self.members.leader:
            rebalance.assign(outcome, {each.member_id: each.assignment for each in request.assignments})
        return outcome.build()

    def heartbeat(self, request: HeartbeatRequest, turn: Turn) -> Outcome:
        member = self._find_member(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        self._rebalance.renew(member, turn)
        if self.state is ClassicState.PREPARING_REBALANCE:
            return Outcome.answer(turn, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return Outcome.answer(turn, HeartbeatResponse())

    def leave(self, request: LeaveGroupRequest, turn: Turn) -> Outcome:
        outcome = OutcomeBuilder(turn)
        before = len(self.members)
        responses = [self._leave_one(outcome, identity) for identity in request.members]
        reasons = format_reasons(identity.reason for identity in request.members)
        self._rebalance_remaining(outcome, before, f"members left the group: {reasons}")
        outcome.reply(turn.ticket, LeaveGroupResponse(members=responses))
        return outcome.build()

    def _leave_one(self, outcome: OutcomeBuilder, identity: MemberIdentity) -> MemberResponse:
        """Remove one member, named by its member id or, as administrators do it, by its instance id alone."""
        response = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        if identity.member_id in self.members.pending:
            del self.members.pending[identity.member_id]
            self._rebalance.sessions.end(identity.member_id)
            return response
        try:
            if not identity.member_id and identity.group_instance_id is not None:
                member = self.members.find_instance(identity.group_instance_id)
                if member is None:
                    raise unknown_member(identity.group_instance_id)
            else:
                member = self._find_member(identity.member_id, identity.group_instance_id)
        except KafkaError as error:
            response.error_code = error.code
            return response
        self._rebalance.dismiss(outcome, member)
        return response

    def _find_member(self, member_id: str, instance_id: str | None) -> Member:
        return self._joins.find_member(member_id, instance_id)

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"the group is in generation {self.generation}, not {generation}"
            )

    # --- offsets ---

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, turn: Turn, *, api_version: int
    ) -> None:
        """Check whether this member may commit now; a success counts as a heartbeat. `api_version` is not needed
        here."""
        if generation < 0 and self.is_empty:
            return  # a consumer that assigns partitions itself, or an administrator
        if generation < 0 and not member_id and instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "only members may commit offsets of a group that has members")
        member = self._find_member(member_id, instance_id)
        self._check_generation(generation)
        if self.state is ClassicState.COMPLETING_REBALANCE:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing: its partitions are not assigned yet"
            )
        self._rebalance.renew(member, turn)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int, turn: Turn) -> None:
        """Producers before KIP-447 name no member. Unlike other commits, this one is allowed in every state of the
        group."""
        if generation >= 0 or member_id or instance_id is not None:
            if generation < 0 and self.is_empty:
                return
            self._find_member(member_id, instance_id)
            self._check_generation(generation)

    def check_fetch(self, member_id: str, member_epoch: int, turn: Turn) -> None:
        """The offsets of a classic group may be read by any client."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group has members: it is {self.state_name}")

    def check_delete_offsets(self) -> None:
        """If the subscriptions of the members can be read, `is_subscribed_to` decides for each topic."""
        if not self.is_empty and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group has members: it is {self.state_name}")

    # --- time ---

    @property
    def wake_at(self) -> int | None:
        session, deadline = self._rebalance.sessions.next, self._rebalance.deadline
        if session is None or deadline is None:
            return deadline if session is None else session
        return min(session, deadline)

    def wake(self, turn: Turn) -> Outcome:
        rebalance, outcome, before = self._rebalance, OutcomeBuilder(turn), len(self.members)
        for member_id in rebalance.sessions.take_expired(turn.monotonic_ms):
            self._end_session(outcome, member_id)
        self._rebalance_remaining(outcome, before, "the sessions of members timed out")
        if rebalance.deadline is not None and rebalance.deadline <= turn.monotonic_ms:
            rebalance.expire(outcome)
        return outcome.build()

    def _end_session(self, outcome: OutcomeBuilder, member_id: str) -> None:
        """Remove a member whose session timed out, unless it waits for a reply: it cannot send heartbeats then, and its
        session is renewed with the reply."""
        if member_id in self.members.pending:
            del self.members.pending[member_id]
            return
        member = self.members.get(member_id)
        if member is not None and (member.is_new or not member.is_waiting):
            self._rebalance.dismiss(outcome, member)

    def _rebalance_remaining(self, outcome: OutcomeBuilder, members_before: int, reason: str) -> None:
        """Begin a rebalance if members have left, or finish one that waited only for those who left."""
        if self.state is ClassicState.PREPARING_REBALANCE or len(self.members) < members_before:
            self._rebalance.advance(outcome, lambda: reason)

    def rebalance(self, turn: Turn, reason: str) -> Outcome:
        """Begin a rebalance for a reason that comes from the coordinator, unless one has begun already."""
        outcome = OutcomeBuilder(turn)
        if self.state is not ClassicState.PREPARING_REBALANCE:
            self._rebalance.prepare(outcome, reason)
        return outcome.build()

    def dissolve(self, outcome: OutcomeBuilder, code: ErrorCode) -> None:
        """The group is about to be converted: reply to the members that wait."""
        for member in self.members:
            outcome.reply(self.members.stop_joining(member), JoinGroupResponse(error_code=code, member_id=member.id))
            outcome.reply(member.syncing, SyncGroupResponse(error_code=code))
            member.syncing = None

    # --- the log ---

    def replay_metadata(self, value: GroupMetadataValue | None) -> None:
        self._rebalance.replay(value)

    def finish_loading(self, turn: Turn) -> Outcome:
        """Start the sessions of all members. If group.max.size is smaller than before, a rebalance removes members."""
        outcome = OutcomeBuilder(turn)
        for member in self.members:
            self._rebalance.renew(member, turn)
        if len(self.members) > turn.config.group_max_size:
            self._rebalance.prepare(outcome, "the group has more members than group.max.size")
        return outcome.build()

    def tombstones(self) -> list[StoredRecord]:
        return [StoredRecord(GroupMetadataKey(group_id=self.id), None)]
