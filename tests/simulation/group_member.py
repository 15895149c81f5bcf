"""The base of group members of both protocols in a simulation: they send requests, commit offsets, come and go."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from ottla.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.channel import Channel
from tests.simulation.history import Committing, OffsetKnown
from tests.simulation.ownership import Ownership
from tests.simulation.world import Machine

AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
REJECTED = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""Error codes of a commit that came too late: the member has lost its partition."""
COMMIT_VERSION = 9
SESSION_MS = 4000
REBALANCE_MS = 3000


class Commits:
    """The offsets that one group commits. They rise for each partition, whichever member commits them."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._next: dict[int, int] = {}
        self._known: dict[int, int] = {}

    def key(self, partition: int) -> str:
        """The name of the partition's offset in the history."""
        return f"{self.group}/{partition}"

    def draw(self, partition: int) -> int:
        self._next[partition] = number = self._next.get(partition, 0) + 1
        return number

    def is_news(self, partition: int, number: int) -> bool:
        """Whether this answer is newer than all before it. False if the answer to a later commit came first."""
        if number < self._known.get(partition, 0):
            return False
        self._known[partition] = number
        return True

    @property
    def partitions(self) -> list[int]:
        return sorted(self._next)


class GroupMember:
    """One client process. It is a member for a while, leaves or dies, and comes back, until `stopped` is set."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        topic: str,
        topic_id: bytes,
        ownership: Ownership,
        commits: Commits,
        random: Random,
    ) -> None:
        self.name = name
        self.stopped = False
        self.machine = machine
        self.topic = topic
        self.topic_id = topic_id
        self.ownership = ownership
        self.commits = commits
        self.group = commits.group
        self.random = random
        self.instance_id = f"instance-{name}" if random.random() < 0.3 else None
        self.pause_s = random.choice((0.05, 0.2, 0.8))
        self.owned: frozenset[int] = frozenset()
        self._channel: Channel | None = None
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        while not self.stopped:
            await self.take_part()
            self.give_up()
            await self.pause(4)

    async def take_part(self) -> None:
        """One membership, from its first request to its last."""
        raise AssertionError("each protocol has its own")

    async def pause(self, times: float = 1) -> None:
        await asyncio.sleep(self.random.uniform(0, self.pause_s * times))

    def happens(self, chance: float) -> bool:
        return self.random.random() < chance

    # Owning

    def confirm(self, partitions: Sequence[int] | frozenset[int], asked_s: float) -> None:
        self.ownership.confirm(self.name, partitions, asked_s, self._loop.time())

    def give_up(self) -> None:
        self.owned = frozenset()
        self.ownership.give_up(self.name)

    # Asking

    async def ask(self, message: Message, version: int) -> Any:
        """Send a request. None if there was no answer."""
        channel = await self._connect()
        return None if channel is None else await channel.call(message, version)

    async def _connect(self) -> Channel | None:
        if self._channel is None or self._channel.lost:
            try:
                self._channel = await Channel.open(self.name, self.machine)
            except OSError:
                await self.pause()
                return None
        return self._channel

    def hang_up(self) -> None:
        """Close the connection without a request, as the kernel does for a process that died."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    @property
    def now_s(self) -> float:
        return self._loop.time()

    # Committing

    async def commit(self, member_id: str, generation: int) -> None:
        """Commit the next offset of one of the partitions that this member owns."""
        channel = await self._connect()
        if channel is None or not self.owned:
            return
        partition = self.random.choice(sorted(self.owned))
        number, key = self.commits.draw(partition), self.commits.key(partition)
        self.machine.world.record(self.name, Committing(key, number))
        asked = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=number, committed_metadata=self.name
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[asked])],
        )
        answer = await channel.call(request, COMMIT_VERSION)
        if answer is None:
            return
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code is not ErrorCode.NONE:
            assert code in AGAIN or code in REJECTED, f"{self.name} cannot commit: {code.name}"
        elif self.commits.is_news(partition, number):
            self.machine.world.record(self.name, OffsetKnown(key, channel.life, number))
