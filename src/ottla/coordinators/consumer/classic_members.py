"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

To such a member the group looks like a classic group in which it never has to wait. Its epoch is its generation.
JoinGroup carries its subscription and the partitions that it owns, in the metadata of its first protocol; SyncGroup
returns the partitions that it may read; and Heartbeat asks it to join again when it has a step to make. There is no
leader, because the coordinator assigns.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from ottla.coordinators.consumer.identities import (
    check_room,
    find_identified_member,
    find_member,
    find_static_member,
    replace_member,
)
from ottla.coordinators.consumer.members import Member, MemberState
from ottla.coordinators.consumer.rebalance import ConsumerRebalance
from ottla.coordinators.consumer.state import GroupChange, GroupState
from ottla.coordinators.formats import ClassicMemberMetadata, ClassicProtocol
from ottla.coordinators.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    choose_assignment_version,
    partitions_by_id,
    read_subscription,
    write_assignment,
)
from ottla.coordinators.groups.downgrade import Downgrade, build_downgrade_records, may_downgrade
from ottla.coordinators.groups.sessions import Sessions
from ottla.coordinators.machine import Caller, Outcome, Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.malformed import Malformed
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_FROM: Final = 4


class ClassicMembers:
    """Decides about their requests, and keeps the deadlines by which they have to join or sync."""

    __slots__ = ("_joins", "_rebalance", "_sessions", "_syncs")

    def __init__(self, sessions: Sessions, rebalance: ConsumerRebalance) -> None:
        self._sessions = sessions
        self._rebalance = rebalance
        self._joins = Sessions()
        self._syncs = Sessions()

    # --- requests ---

    def join(
        self,
        change: GroupChange,
        request: JoinGroupRequest,
        caller: Caller,
        turn: Turn,
        *,
        version: int,
        fresh_member_id: str,
    ) -> Outcome:
        self._check_join(change.state, request, turn)
        if not request.member_id and request.group_instance_id is None and version >= MEMBER_ID_REQUIRED_FROM:
            response = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=fresh_member_id)
            return Outcome.answer(turn, response)
        subscription = _read_subscription(request)
        before, replaces_consumer = self._identify(change, request, fresh_member_id)
        member = _update_member(before, request, subscription, caller)
        subscribed = self._rebalance.subscribe(change, before, member, turn)
        owned = partitions_by_id(subscription.owned_partitions, turn.image)
        downgrades = replaces_consumer and may_downgrade(change.state, (), turn)
        if not downgrades:
            self._rebalance.assign(change, turn)
        member = self._rebalance.reconcile(change, member.id, owned, subscribed.is_changed, turn)
        change.reply(turn.ticket, _build_join_response(member))
        if downgrades:
            # A classic group cannot be half-way to an assignment: unless every member has its target, all join again.
            change.request(Downgrade(change.state.id, needs_rebalance=not change.state.is_settled))
            change.store_conversion(build_downgrade_records(change.state, (), turn))
            return change.build()
        change.effects.append(partial(self._start_session, member, turn))
        if subscribed.search is not None:
            change.request(subscribed.search)
        return change.build()

    def _start_session(self, member: Member, turn: Turn) -> None:
        self._joins.end(member.id)
        self._renew(member, turn)
        self._syncs.renew(member.id, turn.monotonic_ms + member.rebalance_timeout_ms)

    def sync(self, state: GroupState, request: SyncGroupRequest, turn: Turn) -> Outcome:
        member = self._find_classic_member(state, request.member_id, request.group_instance_id, request.generation_id)
        _check_protocol(member, request)
        if state.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(member, turn)
            return Outcome.answer(turn, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        assert member.classic is not None
        partitions = {topic: frozenset(numbers) for topic, numbers in member.assigned.items()}
        version = choose_assignment_version(member.classic.supported_protocols[0].metadata)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(partitions, turn.image, version),
        )
        self._syncs.end(member.id)
        self._renew(member, turn)
        return Outcome.answer(turn, response)

    def heartbeat(self, state: GroupState, request: HeartbeatRequest, turn: Turn) -> Outcome:
        member = self._find_classic_member(state, request.member_id, request.group_instance_id, request.generation_id)
        self._renew(member, turn)
        if not _has_to_join(state, member):
            return Outcome.answer(turn, HeartbeatResponse())
        self._await_join(member, turn)
        return Outcome.answer(turn, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def find_leavers(self, state: GroupState, request: LeaveGroupRequest) -> tuple[list[Member], LeaveGroupResponse]:
        """The members that leave, of either protocol, and the response with a result for each."""
        members: dict[str, Member] = {}
        rows = []
        for identity in request.members:
            row = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
            try:
                member = _find_leaver(state, identity)
                members[member.id] = member
            except KafkaError as error:
                row.error_code = error.code
            rows.append(row)
        return list(members.values()), LeaveGroupResponse(members=rows)

    # --- time ---

    @property
    def wake_at(self) -> int | None:
        join_at, sync_at = self._joins.next, self._syncs.next
        if join_at is None or sync_at is None:
            return sync_at if join_at is None else join_at
        return min(join_at, sync_at)

    def take_expired(self, now: int) -> list[str]:
        return [*self._joins.take_expired(now), *self._syncs.take_expired(now)]

    def forget(self, member_id: str) -> None:
        """Drop the deadlines of a member that is gone, or that uses the consumer protocol now."""
        self._joins.end(member_id)
        self._syncs.end(member_id)

    def _renew(self, member: Member, turn: Turn) -> None:
        assert member.classic is not None
        self._sessions.renew(member.id, turn.monotonic_ms + member.classic.session_timeout_ms)

    def _await_join(self, member: Member, turn: Turn) -> None:
        if self._joins.deadline(member.id) is None:
            self._joins.renew(member.id, turn.monotonic_ms + member.rebalance_timeout_ms)

    # --- checks ---

    def _check_join(self, state: GroupState, request: JoinGroupRequest, turn: Turn) -> None:
        if turn.config.group_consumer_migration_policy.lower() == "disabled":
            message = f"group {state.id!r} uses the consumer protocol, and migration is disabled"
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
        limit = turn.config.group_consumer_max_size
        check_room(state, request.member_id, request.group_instance_id, limit)
        offered = {protocol.name for protocol in request.protocols}
        if request.protocol_type != PROTOCOL_TYPE or not offered & _find_common_protocols(state, offered):
            message = f"the members of group {state.id!r} do not support these protocols"
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)

    def _identify(self, change: GroupChange, request: JoinGroupRequest, fresh_member_id: str) -> tuple[Member, bool]:
        """The member before this request, and whether it replaces a static member of the consumer protocol."""
        member_id = request.member_id or fresh_member_id
        if request.group_instance_id is None:
            return change.state.members.get(member_id) or Member(member_id), False
        if request.member_id:
            return find_identified_member(change.state, member_id, request.group_instance_id), False
        static = change.state.find_instance(request.group_instance_id)
        if static is None:
            return Member(member_id), False
        return replace_member(change, static, member_id), static.classic is None

    def _find_classic_member(
        self, state: GroupState, member_id: str, instance_id: str | None, generation: int
    ) -> Member:
        """Find a member of the classic protocol, and check that the request has its epoch."""
        member = find_identified_member(state, member_id, instance_id)
        if member.classic is None:
            message = f"member {member_id!r} does not use the classic protocol"
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        if generation != member.epoch:
            message = f"the member is in generation {member.epoch}, not {generation}"
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, message)
        return member


def _find_common_protocols(state: GroupState, offered: set[str]) -> set[str]:
    """Those of the offered protocols that every classic member supports."""
    for member in state.members.values():
        if member.classic is not None:
            offered = offered & {protocol.name for protocol in member.classic.supported_protocols}
    return offered


def _read_subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(request.protocols[0].metadata)
    except Malformed as error:
        message = f"protocol {request.protocols[0].name!r} has no readable subscription: {error}"
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message) from None


def _update_member(
    member: Member, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, caller: Caller
) -> Member:
    given_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        topic_names=frozenset(filter(caller.sight, subscription.topics) if caller.sight else subscription.topics),
        topic_pattern="",
        rebalance_timeout_ms=request.session_timeout_ms if given_ms < 0 else given_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in request.protocols
            ],
        ),
    )


def _build_join_response(member: Member) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        member_id=member.id,
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic.supported_protocols[0].name,
    )


def _check_protocol(member: Member, request: SyncGroupRequest) -> None:
    assert member.classic is not None
    chosen = member.classic.supported_protocols[0].name
    for given, expected in ((request.protocol_type, PROTOCOL_TYPE), (request.protocol_name, chosen)):
        if given is not None and given != expected:
            message = f"the group has chosen {expected!r}, not {given!r}"
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)


def _has_to_join(state: GroupState, member: Member) -> bool:
    if member.epoch < state.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(state, member)


def _waits_for_others(state: GroupState, member: Member) -> bool:
    return any(
        number not in member.assigned.get(topic, {}) and (topic, number) in state.owners
        for topic, numbers in state.target(member.id).items()
        for number in numbers
    )


def _find_leaver(state: GroupState, identity: MemberIdentity) -> Member:
    """Find a member by its member id or, as administrators do it, by its instance id alone."""
    if identity.group_instance_id is None:
        return find_member(state, identity.member_id)
    if not identity.member_id:
        return find_static_member(state, identity.group_instance_id)
    return find_identified_member(state, identity.member_id, identity.group_instance_id)
