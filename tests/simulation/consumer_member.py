"""A member of a group with the consumer protocol (KIP-848), in a simulation.

When the coordinator revokes partitions, the member gives them back after a random time.
"""

from typing import Any

from ottla.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from tests.simulation.group_member import AGAIN, REBALANCE_MS, GroupMember

HEARTBEAT_VERSION = 1
LEAVING, LEAVING_FOR_NOW = -1, -2

OUT = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
STILL_TAKEN = (ErrorCode.UNRELEASED_INSTANCE_ID,)
"""The instance id of a static member that was killed is taken until its old session ends."""


class ConsumerMember(GroupMember):
    member_id = ""
    epoch = 0
    lives = 0

    async def take_part(self) -> None:
        self.lives += 1
        self.member_id, self.epoch = f"{self.name}-{self.lives}", 0
        told = frozenset[int]()
        is_full = True
        while not self.stopped and not self.happens(0.03):
            if self.epoch and self.happens(0.4):
                await self.commit(self.member_id, self.epoch)
                continue
            asked_s, reported = self.now_s, self.owned
            answer = await self.ask(self._heartbeat(is_full=is_full), HEARTBEAT_VERSION)
            if answer is None:
                is_full = True  # the member may have missed an answer
                continue
            if answer.error_code:
                await self._handle_error(ErrorCode(answer.error_code))
                told, is_full = self.owned, True
                continue
            self.epoch, is_full = answer.member_epoch, False
            if answer.assignment is not None:
                told = partitions_of(answer.assignment)
            self.confirm(reported | told, asked_s)
            await self.pause()
            if told != self.owned and not self.happens(0.3):
                self.owned, is_full = told, True
        await self._end()

    def _heartbeat(self, *, is_full: bool) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if is_full or not self.epoch:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [self.topic]
            request.topic_partitions = []
            if self.owned:
                owned = ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=self.topic_id, partitions=sorted(self.owned)
                )
                request.topic_partitions = [owned]
        return request

    async def _handle_error(self, code: ErrorCode) -> None:
        assert code in AGAIN or code in OUT or code in STILL_TAKEN, f"{self.name} is told {code.name}"
        self.machine.world.note(self.name, f"is told {code.name}")
        if code in OUT:
            self.give_up()
            self.epoch = 0
        await self.pause()

    async def _end(self) -> None:
        """End this membership: leave for good, leave for a while (a static member), or die without a word."""
        if not self.stopped and self.happens(0.5):
            self.hang_up()
            return
        self.give_up()
        leaving = self._heartbeat(is_full=False)
        leaving.member_epoch = LEAVING if self.instance_id is None else LEAVING_FOR_NOW
        await self.ask(leaving, HEARTBEAT_VERSION)


def partitions_of(assignment: Any) -> frozenset[int]:
    return frozenset(number for topic in assignment.topic_partitions for number in topic.partitions)
