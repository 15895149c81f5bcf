"""Decides about JoinGroup in a classic group: who may join, as which member, and whether a rebalance begins.

A dynamic member joins twice (from version 4 on): the first request gets a member id, the second one uses it, so a
client that never reads the first response leaves no member behind. A static member has an instance id of its own. If it
joins without a member id it was restarted: it replaces the member with the same instance id, and that one is fenced.
"""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from ottla.coordinators.classic.members import Member, Protocols, choose_rebalance_timeout_ms
from ottla.coordinators.classic.rebalance import Rebalance
from ottla.coordinators.classic.states import ClassicState
from ottla.coordinators.machine import Caller, Outcome, Turn
from ottla.coordinators.outcome_builder import OutcomeBuilder
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse

MEMBER_ID_REQUIRED_FROM = 4
SKIPS_ASSIGNMENT_FROM = 9
REASONS_MAX, REASON_LENGTH_MAX = 3, 255


class JoinAttempt(NamedTuple):
    """One JoinGroup request, with its sender and the id that a new member would get."""

    request: JoinGroupRequest
    protocols: Protocols
    caller: Caller
    version: int
    fresh_member_id: str

    @property
    def reason(self) -> str:
        return format_reasons([self.request.reason])

    @property
    def rebalance_timeout_ms(self) -> int:
        return choose_rebalance_timeout_ms(self.request.rebalance_timeout_ms, self.request.session_timeout_ms)


class Joins:
    __slots__ = ("_rebalance", "_roster")

    def __init__(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance
        self._roster = rebalance.roster

    def join(self, attempt: JoinAttempt, turn: Turn) -> Outcome:
        outcome, request = OutcomeBuilder(turn), attempt.request
        if not self._has_room(request, turn):
            self._turn_away(outcome, request)
        else:
            self._check_protocols(attempt)
            if request.member_id:
                self._join_known(outcome, attempt)
            elif request.group_instance_id is not None:
                self._join_static(outcome, attempt)
            elif attempt.version >= MEMBER_ID_REQUIRED_FROM:
                self._give_id(outcome, attempt)
            else:
                self._join_new(outcome, attempt, attempt.fresh_member_id)
        return outcome.build()

    def find_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member with this id and, if one is named, this instance id."""
        if instance_id is not None:
            static = self._roster.find_instance(instance_id)
            if static is None:
                raise unknown_member(instance_id)
            if static.id != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID, f"another client has joined with the instance id {instance_id!r}"
                )
        member = self._roster.get(member_id)
        if member is None:
            raise unknown_member(member_id)
        return member

    # --- who may join ---

    def _has_room(self, request: JoinGroupRequest, turn: Turn) -> bool:
        """Whether group.max.size leaves room. If the limit was lowered, the members that join first stay."""
        state, limit = self._rebalance.state, turn.config.group_max_size
        if state is ClassicState.EMPTY:
            return True
        known = self._roster.get(request.member_id)
        if known is None and not request.member_id and request.group_instance_id is not None:
            known = self._roster.find_instance(request.group_instance_id)
        if state is ClassicState.PREPARING_REBALANCE:
            return (known is not None and known.joining is not None) or self._roster.joining_count < limit
        return known is not None or len(self._roster) < limit

    def _turn_away(self, outcome: OutcomeBuilder, request: JoinGroupRequest) -> None:
        outcome.reply(outcome.turn.ticket, JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
        self._roster.pending.pop(request.member_id, None)
        member = self._roster.get(request.member_id)
        if member is not None:
            self._rebalance.dismiss(outcome, member)
        if self._rebalance.state is ClassicState.PREPARING_REBALANCE:
            self._rebalance.advance(outcome, lambda: "the group is full")

    def _check_protocols(self, attempt: JoinAttempt) -> None:
        """The first member decides the protocol type. The others must have a protocol in common with all members."""
        request, protocol_type = attempt.request, self._rebalance.protocol_type
        if self._rebalance.state is ClassicState.EMPTY:
            if request.protocol_type and attempt.protocols:
                return
            problem = "a member must name its protocol type and at least one protocol"
        elif request.protocol_type != protocol_type:
            problem = f"the group's protocol type is {protocol_type!r}, not {request.protocol_type!r}"
        elif not self._roster.supports(name for name, _ in attempt.protocols):
            problem = "the members of the group have none of these protocols in common"
        else:
            return
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, problem)

    # --- new members ---

    def _give_id(self, outcome: OutcomeBuilder, attempt: JoinAttempt) -> None:
        member_id = attempt.fresh_member_id
        self._roster.pending[member_id] = None
        self._rebalance.sessions.renew(member_id, outcome.turn.monotonic_ms + attempt.request.session_timeout_ms)
        required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        outcome.reply(outcome.turn.ticket, required)

    def _join_new(self, outcome: OutcomeBuilder, attempt: JoinAttempt, member_id: str) -> None:
        request = attempt.request
        if not self._roster:
            self._rebalance.protocol_type = request.protocol_type
        member = Member(
            member_id,
            request.group_instance_id,
            attempt.caller.client_id,
            attempt.caller.host,
            request.session_timeout_ms,
            attempt.rebalance_timeout_ms,
            attempt.protocols,
            joining=outcome.turn.ticket,
            is_new=True,
        )
        self._rebalance.admit(member, outcome.turn)
        self._rebalance.advance(outcome, lambda: f"a member joined: {attempt.reason}")

    def _join_static(self, outcome: OutcomeBuilder, attempt: JoinAttempt) -> None:
        member = self._roster.find_instance(attempt.request.group_instance_id or "")
        if member is None:
            self._join_new(outcome, attempt, attempt.fresh_member_id)
            return
        rebalance, leader_before = self._rebalance, self._roster.leader.id if self._roster.leader is not None else ""
        self._fence(outcome, member)
        self._replace(outcome, member, attempt)
        if rebalance.state is ClassicState.STABLE and self._roster.choose_protocol() == rebalance.protocol:
            # Nothing changes for the other members, so there is no rebalance: it keeps its assignment.
            outcome.store(rebalance.build_record(outcome.turn, {each.id: each.assignment for each in self._roster}))
            joined = rebalance.build_join_response(member)
            if attempt.version >= SKIPS_ASSIGNMENT_FROM:
                joined.skip_assignment = member is self._roster.leader
            else:
                joined.leader, joined.members = (
                    leader_before,
                    [],
                )  # a client that does not learn that it leads will not assign
            outcome.reply(outcome.turn.ticket, joined)
            return
        rebalance.await_join(outcome, member, outcome.turn.ticket)
        rebalance.advance(outcome, lambda: f"a static member came back: {attempt.reason}")

    def _fence(self, outcome: OutcomeBuilder, member: Member) -> None:
        fenced = ErrorCode.FENCED_INSTANCE_ID
        outcome.reply(self._roster.stop_joining(member), JoinGroupResponse(error_code=fenced, member_id=member.id))
        outcome.reply(member.syncing, SyncGroupResponse(error_code=fenced))
        member.syncing = None

    def _replace(self, outcome: OutcomeBuilder, member: Member, attempt: JoinAttempt) -> None:
        """Give the member a new id, and the address and settings of the client that joined."""
        self._rebalance.mark_synced(member)
        self._rebalance.sessions.end(member.id)
        self._roster.rename(member, attempt.fresh_member_id)
        member.client_id, member.client_host, member.is_new = attempt.caller.client_id, attempt.caller.host, False
        self._update(member, attempt)
        self._rebalance.renew(member, outcome.turn)

    # --- known members ---

    def _join_known(self, outcome: OutcomeBuilder, attempt: JoinAttempt) -> None:
        request = attempt.request
        if request.member_id in self._roster.pending and request.group_instance_id is None:
            self._join_new(outcome, attempt, request.member_id)
            return
        member = self.find_member(request.member_id, request.group_instance_id)
        unchanged = member.protocols == attempt.protocols
        state, leads = self._rebalance.state, member is self._roster.leader
        if unchanged and (state is ClassicState.COMPLETING_REBALANCE or (state is ClassicState.STABLE and not leads)):
            # It may have missed the response to its last JoinGroup. A leader that joins a stable group wants a new
            # assignment, for example because its topics have changed: then there is a rebalance.
            outcome.reply(outcome.turn.ticket, self._rebalance.build_join_response(member))
            return
        self._update(member, attempt)
        self._rebalance.await_join(outcome, member, outcome.turn.ticket)
        self._rebalance.advance(outcome, lambda: f"a member joined again: {attempt.reason}")

    def _update(self, member: Member, attempt: JoinAttempt) -> None:
        if member.protocols != attempt.protocols:
            self._roster.offer(member, attempt.protocols)
        member.session_timeout_ms = attempt.request.session_timeout_ms
        member.rebalance_timeout_ms = attempt.rebalance_timeout_ms


def format_reasons(given: Iterable[str | None]) -> str:
    """The reasons that clients give for joining or leaving, for a log line: each once, a few, and cut if long."""
    reasons = dict.fromkeys(reason or "no reason given" for reason in given)
    return "; ".join(reason[:REASON_LENGTH_MAX] for reason in islice(reasons, REASONS_MAX))


def unknown_member(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {name!r}")
