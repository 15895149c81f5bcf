"""A group in a simulation that only commits. Its offsets rise, each is sent once, and some are read back."""

import asyncio
from random import Random

from ottla.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.simulation.channel import Channel
from tests.simulation.history import Committing, OffsetKnown
from tests.simulation.world import Machine

MAY_PASS = (
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
BY_NAME, BY_ID = 9, 10


class Committer:
    def __init__(self, name: str, machine: Machine, topic: str, topic_id: bytes, random: Random) -> None:
        self.name = name
        self._machine = machine
        self._world = machine.world
        self._topic = topic
        self._topic_id = topic_id
        self._random = random
        self._version = random.choice((BY_NAME, BY_ID))
        self._offset = 0

    async def run(self, count: int) -> None:
        """Commit `count` offsets. An offset whose commit got no answer may have been stored or not."""
        while self._offset < count:
            try:
                channel = await Channel.open(self.name, self._machine)
            except OSError:
                await asyncio.sleep(self._random.uniform(0.01, 0.5))
                continue
            while self._offset < count and await self._step(channel):
                if self._random.random() < 0.3:
                    await asyncio.sleep(self._random.uniform(0, 0.5))
            channel.close()
            await asyncio.sleep(self._random.uniform(0, 0.2))

    async def read(self) -> int:
        """Read the group's offset at the end."""
        while True:
            channel = await Channel.open(self.name, self._machine)
            found = await self._fetch(channel)
            channel.close()
            if found is not None:
                return found
            await asyncio.sleep(0.05)

    async def _step(self, channel: Channel) -> bool:
        """Commit one offset or read it back. Returns whether the connection can still be used."""
        chance = self._random.random()
        if chance < 0.1:
            return await channel.call(FindCoordinatorRequest(coordinator_keys=[self.name]), 4) is not None
        if chance < 0.3:
            found = await self._fetch(channel)
            if found is not None:
                self._world.record(self.name, OffsetKnown(self.name, channel.life, found))
            return found is not None
        return await self._commit(channel)

    async def _commit(self, channel: Channel) -> bool:
        self._offset += 1
        offset = self._offset
        self._world.record(self.name, Committing(self.name, offset))
        partition = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata=f"offset {offset}")
        topic = OffsetCommitRequestTopic(name=self._topic, topic_id=self._topic_id, partitions=[partition])
        response = await channel.call(OffsetCommitRequest(group_id=self.name, topics=[topic]), self._version)
        if response is None:
            return False
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        assert code in MAY_PASS, f"{self.name} cannot commit: {code.name}"
        if code is ErrorCode.NONE:
            self._world.record(self.name, OffsetKnown(self.name, channel.life, offset))
        else:
            self._world.note(self.name, f"{offset}: {code.name}")
            await asyncio.sleep(self._random.uniform(0.01, 0.3))
        return True

    async def _fetch(self, channel: Channel) -> int | None:
        """Read the group's offset. None if there was no answer, or if the coordinator is not ready."""
        topic = OffsetFetchRequestTopics(name=self._topic, topic_id=self._topic_id, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=self.name, topics=[topic])
        response = await channel.call(OffsetFetchRequest(groups=[group]), self._version)
        if response is None:
            return None
        code = ErrorCode(response.groups[0].error_code)
        assert code in MAY_PASS, f"{self.name} cannot read its offset: {code.name}"
        if code is not ErrorCode.NONE:
            return None
        found = response.groups[0].topics[0].partitions[0]
        offset: int = found.committed_offset
        assert found.error_code == 0 and found.metadata == (f"offset {offset}" if offset > 0 else "")
        return offset
