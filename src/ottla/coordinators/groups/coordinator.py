"""The group coordinator of this broker: one named operation for each thing that a request can ask of a group.

An operation finds the partition of `__consumer_offsets` that keeps the group and runs one turn of that partition's
machine. A partition that another broker leads is refused with NOT_COORDINATOR, and the client looks the coordinator up
again. While the partition is being loaded, operations fail with COORDINATOR_LOAD_IN_PROGRESS.

`join`, `sync`, `heartbeat`, `commit_offsets` and `fetch_offsets` are called very often and hardly ever have to wait:
they return the response itself when it is ready at once, and a coroutine otherwise.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, TypeAlias, TypeVar

from ottla.coordinators.formats import GROUP_FORMAT
from ottla.coordinators.groups.errands import GroupErrands
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.internal_topics import OFFSETS_TOPIC
from ottla.coordinators.machine import Caller
from ottla.coordinators.runtime import Coordinator, CoordinatorContext
from ottla.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.list_groups import ListedGroup
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

T = TypeVar("T")

Answer: TypeAlias = T | Coroutine[Any, Any, T]
"""The response, or a coroutine that returns it."""


class GroupCoordinator(Coordinator[GroupMachine]):
    OPERATIONS = (
        "commit_offsets",
        "commit_transactional_offsets",
        "consumer_heartbeat",
        "delete",
        "delete_offsets",
        "delete_offsets_of_topics",
        "describe",
        "describe_consumer_group",
        "fetch_offsets",
        "heartbeat",
        "join",
        "leave",
        "list_groups",
        "sync",
    )
    RUN_BELOW_MIN_ISR = frozenset(OPERATIONS) - {"join", "leave"}

    def __init__(self, context: CoordinatorContext) -> None:
        errands = GroupErrands(context.offload)
        super().__init__(OFFSETS_TOPIC, GROUP_FORMAT, GroupMachine, context, errands.perform)

    # Members of the classic protocol

    def join(
        self, request: JoinGroupRequest, caller: Caller, *, version: int, fresh_member_id: str
    ) -> Answer[JoinGroupResponse]:
        """`fresh_member_id` becomes the id of a member that has none yet."""
        return self.answer(
            "join",
            request.group_id,
            lambda machine, turn: machine.join_group(
                request, caller, turn, version=version, fresh_member_id=fresh_member_id
            ),
        )

    def sync(self, request: SyncGroupRequest) -> Answer[SyncGroupResponse]:
        return self.answer("sync", request.group_id, lambda machine, turn: machine.sync_group(request, turn))

    def heartbeat(self, request: HeartbeatRequest) -> Answer[HeartbeatResponse]:
        return self.answer("heartbeat", request.group_id, lambda machine, turn: machine.heartbeat(request, turn))

    async def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        response: LeaveGroupResponse = await self.run(
            "leave", request.group_id, lambda machine, turn: machine.leave_group(request, turn)
        )
        return response

    # Members of the consumer protocol

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse:
        response: ConsumerGroupHeartbeatResponse = await self.run(
            "consumer_heartbeat",
            request.group_id,
            lambda machine, turn: machine.consumer_group_heartbeat(request, caller, turn),
        )
        return response

    # Offsets

    def commit_offsets(self, request: OffsetCommitRequest, *, version: int) -> Answer[OffsetCommitResponse]:
        return self.answer(
            "commit_offsets",
            request.group_id,
            lambda machine, turn: machine.commit_offsets(request, turn, version=version),
        )

    async def commit_transactional_offsets(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        response: TxnOffsetCommitResponse = await self.run(
            "commit_transactional_offsets",
            request.group_id,
            lambda machine, turn: machine.commit_transactional_offsets(request, turn),
        )
        return response

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, version: int, require_stable: bool
    ) -> Answer[OffsetFetchResponseGroup]:
        return self.answer(
            "fetch_offsets",
            request.group_id,
            lambda machine, turn: machine.fetch_offsets(request, turn, version=version, require_stable=require_stable),
        )

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        response: OffsetDeleteResponse = await self.run(
            "delete_offsets", request.group_id, lambda machine, turn: machine.delete_offsets(request, turn)
        )
        return response

    def delete_offsets_of_topics(self, topics: Iterable[str]) -> None:
        """Delete what any group of this broker has committed for topics that no longer exist."""
        names = list(topics)
        self.tell_all("delete_offsets_of_topics", lambda machine, turn: machine.delete_offsets_of_topics(names, turn))

    # Administration

    async def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """All groups of this broker in one of these states and of one of these types; none named: any."""
        found: list[list[ListedGroup]] = await self.run_all(
            "list_groups", lambda machine, turn: machine.list_groups(states, types, turn)
        )
        return [group for groups in found for group in groups]

    async def describe(self, group_id: str) -> DescribedGroup:
        """A classic group. GROUP_ID_NOT_FOUND if there is none of this name."""
        described: DescribedGroup = await self.run(
            "describe", group_id, lambda machine, turn: machine.describe_group(group_id, turn)
        )
        return described

    async def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        described: DescribedConsumerGroup = await self.run(
            "describe_consumer_group",
            group_id,
            lambda machine, turn: machine.describe_consumer_group(group_id, turn),
        )
        return described

    async def delete(self, group_id: str) -> DeletableGroupResult:
        """Delete an empty group and its offsets."""
        result: DeletableGroupResult = await self.run(
            "delete", group_id, lambda machine, turn: machine.delete_group(group_id, turn)
        )
        return result
