"""How a classic group gets from one generation to the next.

A rebalance has two phases. In the first one members join. Each waits until all have joined, or until the longest
rebalance time-out of them has passed; a group that was empty waits a little longer, for more members to come. In the
second one the leader, which got the list of members, sends the assignment with its SyncGroup. The assignment is stored,
and each member gets its part. A member that joins too late, or does not sync, is removed. Static members are an
exception: in the first phase they are removed only when their session times out.

A generation is stored together with its assignment, or when it has no members. Until then it is in memory only: after a
failover the coordinator knows the last generation that was complete.
"""

import logging
from collections.abc import Callable, Mapping

from ottla.coordinators.classic.members import Member, Roster
from ottla.coordinators.classic.states import TRANSITIONS, ClassicState
from ottla.coordinators.formats import GroupMetadataKey, GroupMetadataValue
from ottla.coordinators.groups.sessions import Sessions
from ottla.coordinators.machine import StoredRecord, Ticket, Turn
from ottla.coordinators.outcome_builder import OutcomeBuilder
from ottla.errors import ErrorCode
from ottla.observability.logs import fields
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS = 5 * 60_000
"""How long a new member may wait for a rebalance. A member that does not know its id yet cannot send heartbeats, and a
closed connection is not noticed here: without a limit, clients that retry would fill the group with dead members."""


class Rebalance:
    __slots__ = (
        "_began_ms",
        "_has_newcomers",
        "_remaining_ms",
        "deadline",
        "generation",
        "group_id",
        "is_initial",
        "protocol",
        "protocol_type",
        "roster",
        "sessions",
        "state",
        "state_since_ms",
        "unsynced",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.state_since_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self.sessions = Sessions()
        self.deadline: int | None = None
        """When the members' time to join or, in the second phase, to sync is over."""
        self.unsynced: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup yet."""
        self.is_initial = False
        """Whether the group was empty before this rebalance."""
        self._has_newcomers = False
        self._remaining_ms = 0
        self._began_ms = 0

    # --- the phases ---

    def advance(self, outcome: OutcomeBuilder, reason: Callable[[], str]) -> None:
        """Begin a rebalance, or finish the joining phase if no other member has to be waited for."""
        if self.state is not ClassicState.PREPARING_REBALANCE:
            self.prepare(outcome, reason())
        elif self.roster.has_all_joined and (not self.is_initial or not self.roster):
            self._complete_joining(outcome)

    def prepare(self, outcome: OutcomeBuilder, reason: str) -> None:
        """Begin a rebalance: ask all members to join again."""
        if self.state is ClassicState.COMPLETING_REBALANCE:
            self._cancel_syncs(outcome)
        else:
            self._began_ms = outcome.turn.monotonic_ms
        self.unsynced.clear()
        self.is_initial = self.state is ClassicState.EMPTY
        self._move(ClassicState.PREPARING_REBALANCE, outcome.turn)
        logger.info(
            "a rebalance of the group begins",
            extra=fields(group=self.group_id, generation=self.generation, reason=reason),
        )
        now, timeout_ms = outcome.turn.monotonic_ms, self.roster.rebalance_timeout_ms
        if self.is_initial:
            delay_ms = outcome.turn.config.group_initial_rebalance_delay_ms
            self._has_newcomers, self._remaining_ms = False, max(timeout_ms - delay_ms, 0)
            self.deadline = now + delay_ms
        elif self.roster.has_all_joined:
            self._complete_joining(outcome)
        else:
            self.deadline = now + timeout_ms

    def expire(self, outcome: OutcomeBuilder) -> None:
        """Called when the deadline has come."""
        if self.state is not ClassicState.PREPARING_REBALANCE:
            self._drop_unsynced(outcome)
        elif self.is_initial and self._has_newcomers and self._remaining_ms:
            # Members have joined during the delay, so more may follow: wait once more.
            delay_ms = min(outcome.turn.config.group_initial_rebalance_delay_ms, self._remaining_ms)
            self._has_newcomers, self._remaining_ms = False, self._remaining_ms - delay_ms
            self.deadline = outcome.turn.monotonic_ms + delay_ms
        else:
            self._complete_joining(outcome)

    def _complete_joining(self, outcome: OutcomeBuilder) -> None:
        for member in [each for each in self.roster if each.joining is None and each.instance_id is None]:
            self._forget(member)
        if self.roster and not self.roster.elect():
            # Only static members are left and none has joined: wait for them until their sessions time out.
            self.deadline = outcome.turn.monotonic_ms + self.roster.rebalance_timeout_ms
            return
        self.generation += 1
        self.deadline = None
        self.unsynced.clear()
        if not self.roster:
            self.protocol = None
            outcome.store(self.build_record(outcome.turn, {}))
            return
        self.protocol = self.roster.choose_protocol()
        self._move(ClassicState.COMPLETING_REBALANCE, outcome.turn)
        for member in self.roster:
            outcome.reply(self.roster.stop_joining(member), self.build_join_response(member))
            member.is_new = False
            self.renew(member, outcome.turn)
            self.unsynced[member.id] = None
        self.deadline = outcome.turn.monotonic_ms + self.roster.rebalance_timeout_ms

    def assign(self, outcome: OutcomeBuilder, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignment and reply to every member that waits for its part."""
        outcome.store(self.build_record(outcome.turn, assignments))
        turn = outcome.turn
        turn.meters.groups.classic_rebalances.count_duration((turn.monotonic_ms - self._began_ms) / 1000)
        for member in self.roster:
            if member.syncing is not None:
                ticket, member.syncing = member.syncing, None
                outcome.reply(ticket, self.build_sync_response(assignments.get(member.id, b"")))
                self.renew(member, outcome.turn)

    def mark_synced(self, member: Member) -> None:
        if member.id in self.unsynced:
            del self.unsynced[member.id]
            if not self.unsynced:
                self.deadline = None

    def _cancel_syncs(self, outcome: OutcomeBuilder) -> None:
        for member in self.roster:
            member.assignment = b""
            if member.syncing is not None:
                ticket, member.syncing = member.syncing, None
                outcome.reply(ticket, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
                self.renew(member, outcome.turn)

    def _drop_unsynced(self, outcome: OutcomeBuilder) -> None:
        self.deadline = None
        for member in [each for each in self.roster if each.id in self.unsynced]:
            self._forget(member)
        self.prepare(outcome, "members did not send SyncGroup in time")

    def _move(self, state: ClassicState, turn: Turn) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"a group cannot go from {self.state} to {state}")
        self.state, self.state_since_ms = state, turn.wall_ms

    # --- members ---

    def admit(self, member: Member, turn: Turn) -> None:
        self.roster.add(member)
        self._has_newcomers = True
        self.sessions.renew(member.id, turn.monotonic_ms + NEW_MEMBER_TIMEOUT_MS)

    def renew(self, member: Member, turn: Turn) -> None:
        self.sessions.renew(member.id, turn.monotonic_ms + member.session_timeout_ms)

    def dismiss(self, outcome: OutcomeBuilder, member: Member) -> None:
        """Remove a member that left or timed out. If it still waits for a reply, it is told to join as a new member."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        outcome.reply(self.roster.stop_joining(member), JoinGroupResponse(error_code=unknown))
        outcome.reply(member.syncing, SyncGroupResponse(error_code=unknown))
        self._forget(member)

    def _forget(self, member: Member) -> None:
        self.roster.remove(member)
        self.sessions.end(member.id)
        self.unsynced.pop(member.id, None)

    def await_join(self, outcome: OutcomeBuilder, member: Member, ticket: Ticket) -> None:
        superseded = self.roster.wait_to_join(member, ticket)
        if superseded is not None:
            rejoin = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.id)
            outcome.reply(superseded, rejoin)

    def await_sync(self, outcome: OutcomeBuilder, member: Member, ticket: Ticket) -> None:
        if member.syncing is not None:
            outcome.reply(member.syncing, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = ticket

    # --- responses and records ---

    def build_join_response(self, member: Member) -> JoinGroupResponse:
        leader = self.roster.leader
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader.id if leader is not None else "",
            member_id=member.id,
            members=self.roster.list_members(self.protocol) if member is leader else [],
        )

    def build_sync_response(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=assignment)

    def build_record(self, turn: Turn, assignments: Mapping[str, bytes]) -> StoredRecord:
        leader = self.roster.leader
        return StoredRecord(
            GroupMetadataKey(group_id=self.group_id),
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol=self.protocol,
                leader=leader.id if leader is not None else None,
                current_state_timestamp=turn.wall_ms,
                members=[member.build_record(self.protocol, assignments.get(member.id, b"")) for member in self.roster],
            ),
        )

    def replay(self, value: GroupMetadataValue | None) -> None:
        if value is None:
            self.state = ClassicState.DEAD
            return
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.generation = value.generation
        self.state_since_ms = value.current_state_timestamp
        self.roster.restore(value.members, value.protocol, value.leader)
        self.state = ClassicState.STABLE if self.roster else ClassicState.EMPTY
