"""A member of a group with the classic protocol, in a simulation. The leader of the group assigns round robin."""

from ottla.coordinators.groups.consumer_protocol import read_assignment
from ottla.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.schema import encode
from tests.simulation.group_member import AGAIN, REBALANCE_MS, SESSION_MS, GroupMember

PROTOCOL = "range"
JOIN_VERSION, SYNC_VERSION, BEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
VERSION_0 = bytes(2)
PARTITIONS = 4

OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
ONCE_MORE = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


class ClassicMember(GroupMember):
    member_id = ""
    generation = -1

    async def take_part(self) -> None:
        self.member_id = ""
        while not self.stopped:
            joined = await self._join()
            if joined is None or not await self._sync(joined):
                continue
            await self._work()
            if self.happens(0.2):
                break
        if self.stopped or self.happens(0.5):
            await self._leave()
        else:
            self.hang_up()

    async def _join(self) -> JoinGroupResponse | None:
        """Join the group. The member is eager: it gives up all its partitions first."""
        self.give_up()
        subscription = VERSION_0 + encode(
            ConsumerProtocolSubscription, 0, ConsumerProtocolSubscription(topics=[self.topic])
        )
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription)],
        )
        answer: JoinGroupResponse | None = await self.ask(request, JOIN_VERSION)
        if answer is None:
            await self.pause()
            return None
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = answer.member_id, answer.generation_id
            return None if code else answer
        await self._handle_error(code)
        return None

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments(sorted(member.member_id for member in joined.members), self.topic),
        )
        asked_s = self.now_s
        answer = await self.ask(request, SYNC_VERSION)
        if answer is None:
            return False
        if answer.error_code:
            await self._handle_error(ErrorCode(answer.error_code))
            return False
        topics = read_assignment(answer.assignment).assigned_partitions if answer.assignment else []
        self.owned = frozenset(number for topic in topics for number in topic.partitions)
        self.confirm(self.owned, asked_s)
        return True

    async def _work(self) -> None:
        """Send heartbeats and commits until the broker asks for a rejoin, or until the member dies."""
        while not self.stopped and not self.happens(0.03):
            await self.pause()
            if self.happens(0.5):
                await self.commit(self.member_id, self.generation)
                continue
            asked_s = self.now_s
            request = HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            answer = await self.ask(request, BEAT_VERSION)
            if answer is None:
                continue
            if not answer.error_code:
                self.confirm(self.owned, asked_s)
            elif ErrorCode(answer.error_code) not in AGAIN:
                await self._handle_error(ErrorCode(answer.error_code))
                return

    async def _handle_error(self, code: ErrorCode) -> None:
        assert code in AGAIN or code in OUT or code in ONCE_MORE, f"{self.name} is told {code.name}"
        if code in OUT:
            self.member_id = ""
        self.machine.world.note(self.name, f"is told {code.name}")
        await self.pause()

    async def _leave(self) -> None:
        """Leave the group. A static member does not leave: it may come back soon."""
        if self.member_id and self.instance_id is None:
            identity = MemberIdentity(member_id=self.member_id)
            await self.ask(LeaveGroupRequest(group_id=self.group, members=[identity]), LEAVE_VERSION)


def assignments(members: list[str], topic: str) -> list[SyncGroupRequestAssignment]:
    """The assignments that the leader sends. Empty for other members, because only the leader is told the members."""
    return [
        SyncGroupRequestAssignment(
            member_id=member,
            assignment=VERSION_0
            + encode(
                ConsumerProtocolAssignment,
                0,
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        TopicPartition(topic=topic, partitions=list(range(number, PARTITIONS, len(members))))
                    ]
                ),
            ),
        )
        for number, member in enumerate(members)
    ]
