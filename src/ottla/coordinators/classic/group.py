"""A group of the classic protocol: its members join, one of them assigns, and heartbeats keep them in.

The group decides about JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and says who may commit offsets. How it gets
from one generation to the next is in `classic_rebalance`. Answers to JoinGroup and SyncGroup come in a later turn,
when everybody is there. A group that only stores offsets is one of these without members or protocol.
"""

from typing import Literal

from ottla.coordinators.classic.joins import JoinAttempt, Joins, format_reasons, unknown_member
from ottla.coordinators.classic.members import Member, Roster, read_protocols
from ottla.coordinators.classic.rebalance import Rebalance
from ottla.coordinators.classic.states import State
from ottla.coordinators.classic.subscriptions import CONSUMER, Subscriptions
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
        self._subscriptions = Subscriptions(self._rebalance)

    # --- what is known of it ---

    @property
    def state(self) -> State:
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
        """The assignor, or what else the members agreed on."""
        return self._rebalance.protocol

    @property
    def members(self) -> Roster:
        return self._rebalance.roster

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def is_simple(self) -> bool:
        """Only stores offsets."""
        return self.is_empty and self._rebalance.protocol_type is None and not self.members.pending

    @property
    def uses_consumer_protocol(self) -> bool:
        return self._rebalance.protocol_type == CONSUMER

    def is_subscribed_to(self, topic: str) -> bool:
        """Where the members speak in a way that nobody but they understand, a consumer group counts as subscribed."""
        if not self.uses_consumer_protocol:
            return False
        topics = self._subscriptions.topics()
        return topics is None or topic in topics

    def find_expiry_start(self, committed_ms: int) -> int | None:
        """When the retention of an offset that was committed then began; None while it has not.

        Offsets of topics to which the group is subscribed are no matter of this: they stay.
        """
        if self._rebalance.protocol_type is None:
            return committed_ms
        if self.is_empty:
            since_ms = self._rebalance.state_since_ms
            return since_ms if since_ms >= 0 else committed_ms
        if self.state is State.STABLE and self.uses_consumer_protocol:
            return committed_ms if self._subscriptions.topics() is not None else None
        return None

    def describe(self) -> DescribedGroup:
        """What members say with the chosen protocol is told only while the group is stable: till then it may change."""
        protocol = self.protocol if self.state is State.STABLE else None
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
        """`fresh_member_id` is the id of a member that has none yet."""
        attempt = JoinAttempt(request, read_protocols(request.protocols), caller, version, fresh_member_id)
        return self._joins.join(attempt, turn)

    def sync(self, request: SyncGroupRequest, turn: Turn) -> Outcome:
        rebalance = self._rebalance
        member = self._member(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        for given, chosen in (
            (request.protocol_type, rebalance.protocol_type),
            (request.protocol_name, rebalance.protocol),
        ):
            if given is not None and chosen is not None and given != chosen:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group chose {chosen!r}, not {given!r}")
        if self.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances: join again")
        outcome = OutcomeBuilder(turn)
        rebalance.mark_synced(member)
        if self.state is State.STABLE:
            outcome.reply(turn.ticket, rebalance.build_sync_response(member.assignment))
            return outcome.build()
        outcome.may_be_refused = True  # the generation goes on to wait for an assignment that can be stored
        rebalance.await_sync(outcome, member, turn.ticket)
        if member is self.members.leader:
            rebalance.assign(outcome, {each.member_id: each.assignment for each in request.assignments})
        return outcome.build()

    def heartbeat(self, request: HeartbeatRequest, turn: Turn) -> Outcome:
        member = self._member(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        self._rebalance.renew(member, turn)
        if self.state is State.PREPARING_REBALANCE:
            return Outcome.answer(turn, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return Outcome.answer(turn, HeartbeatResponse())

    def leave(self, request: LeaveGroupRequest, turn: Turn) -> Outcome:
        outcome = OutcomeBuilder(turn)
        before = len(self.members)
        responses = [self._leave_one(outcome, identity) for identity in request.members]
        reasons = format_reasons(identity.reason for identity in request.members)
        self._share_anew(outcome, before, f"members left the group: {reasons}")
        outcome.reply(turn.ticket, LeaveGroupResponse(members=responses))
        return outcome.build()

    def _leave_one(self, outcome: OutcomeBuilder, identity: MemberIdentity) -> MemberResponse:
        """By member id; or, as administrators do it, by instance id alone."""
        response = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        if identity.member_id in self.members.pending:
            del self.members.pending[identity.member_id]
            self._rebalance.sessions.end(identity.member_id)
            return response
        try:
            if not identity.member_id and identity.group_instance_id is not None:
                member = self.members.of_instance(identity.group_instance_id)
                if member is None:
                    raise unknown_member(identity.group_instance_id)
            else:
                member = self._member(identity.member_id, identity.group_instance_id)
        except KafkaError as error:
            response.error_code = error.code
            return response
        self._rebalance.dismiss(outcome, member)
        return response

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        return self._joins.member(member_id, instance_id)

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"the group is in generation {self.generation}, not in {generation}"
            )

    # --- offsets ---

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, turn: Turn, *, api_version: int
    ) -> None:
        """Whether this member may commit offsets now. If so, it is alive. `api_version` matters to other kinds only."""
        if generation < 0 and self.is_empty:
            return  # somebody who manages partitions without the group's help, or an administrator
        if generation < 0 and not member_id and instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members: only they may commit")
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if self.state is State.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the assignment of this generation is not known yet")
        self._rebalance.renew(member, turn)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int, turn: Turn) -> None:
        """Old producers tell nothing about the member; a transaction commits in whatever state the group is."""
        if generation >= 0 or member_id or instance_id is not None:
            if generation < 0 and self.is_empty:
                return
            self._member(member_id, instance_id)
            self._check_generation(generation)

    def check_fetch(self, member_id: str, member_epoch: int, turn: Turn) -> None:
        """Anybody may read a classic group's offsets."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group is {self.state_name}: it has members")

    def check_delete_offsets(self) -> None:
        """With members that say what they are subscribed to, `is_subscribed_to` decides for each topic."""
        if not self.is_empty and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"the group is {self.state_name}: it has members")

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
        self._share_anew(outcome, before, "members were not heard of for too long")
        if rebalance.deadline is not None and rebalance.deadline <= turn.monotonic_ms:
            rebalance.expire(outcome)
        return outcome.build()

    def _end_session(self, outcome: OutcomeBuilder, member_id: str) -> None:
        """A member that waits for us need not speak: it has a new session when it is answered."""
        if member_id in self.members.pending:
            del self.members.pending[member_id]
            return
        member = self.members.get(member_id)
        if member is not None and (member.is_new or not member.is_waiting):
            self._rebalance.dismiss(outcome, member)

    def _share_anew(self, outcome: OutcomeBuilder, members_before: int, reason: str) -> None:
        """Those who stay share what the others had. A rebalance may have waited for just those who are gone."""
        if self.state is State.PREPARING_REBALANCE or len(self.members) < members_before:
            self._rebalance.advance(outcome, lambda: reason)

    def rebalance(self, turn: Turn, reason: str) -> Outcome:
        """Let all members join again, for a reason that none of them gave, unless they have been asked to already."""
        outcome = OutcomeBuilder(turn)
        if self.state is not State.PREPARING_REBALANCE:
            self._rebalance.prepare(outcome, reason)
        return outcome.build()

    def dissolve(self, outcome: OutcomeBuilder, code: ErrorCode) -> None:
        """The group is about to become something else: tell those who wait."""
        for member in self.members:
            outcome.reply(self.members.stop_joining(member), JoinGroupResponse(error_code=code, member_id=member.id))
            outcome.reply(member.syncing, SyncGroupResponse(error_code=code))
            member.syncing = None

    # --- the log ---

    def replay_metadata(self, value: GroupMetadataValue | None) -> None:
        self._rebalance.replay(value)

    def finish_loading(self, turn: Turn) -> Outcome:
        """After replay: every member has a new session, and must fit into the group as it may be now."""
        outcome = OutcomeBuilder(turn)
        for member in self.members:
            self._rebalance.renew(member, turn)
        if len(self.members) > turn.config.group_max_size:
            self._rebalance.prepare(outcome, "the group has more members than it may have now")
        return outcome.build()

    def tombstones(self) -> list[StoredRecord]:
        return [StoredRecord(GroupMetadataKey(group_id=self.id), None)]
