"""A client that creates a topic, fills it, deletes it and creates it again: no record of one shows up in the next.

The client repeats each request until it knows the result. A record that was acknowledged in the last topic of the name
must be in it, and no record of an earlier topic may be.
"""

import asyncio
from random import Random

from ottla.errors import ErrorCode
from ottla.records import batch as batches
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData
from tests.simulation import admin
from tests.simulation.channel import Channel
from tests.simulation.consumer import Records, read_log
from tests.simulation.history import token
from tests.simulation.world import Machine

NAME = "recreator"
PARTITION = TopicPartition("ephemeral", 0)
SETTINGS = {"flush.messages": "1", "internal.segment.bytes": "400", "index.interval.bytes": "100"}
RECORDS = 4
PRODUCE_VERSION = 12
PAUSE_S = 0.2


class Recreator:
    def __init__(self, machine: Machine, random: Random) -> None:
        self._machine = machine
        self._random = random
        self._generation = 0
        self._acknowledged: list[bytes] = []
        self._topic_id = b""
        self._ids: list[bytes] = []

    async def run(self, generations: int) -> None:
        """Create and delete the topic so many times. The topic exists when this returns."""
        for generation in range(1, generations + 1):
            self._generation, self._acknowledged = generation, []
            self._topic_id = await admin.create_topic(self._machine, PARTITION.topic, 1, SETTINGS, self._random)
            assert self._topic_id not in self._ids, "a topic that was deleted is back"
            self._ids.append(self._topic_id)
            for number in range(RECORDS):
                await self._write(b"%d.%d." % (generation, number))
            if generation < generations:
                await self._delete()

    async def check(self) -> list[str]:
        """Read the last topic after the last fault. Returns what is wrong with its records."""
        start, records = await read_log(self._machine, PARTITION)
        return [f"RECREATED {PARTITION}: {problem}" for problem in self._find_problems(start, records)]

    def _find_problems(self, start: int, records: Records) -> list[str]:
        values = [value for _, value in records]
        strange = [value for value in values if not value.startswith(b"%d." % self._generation)]
        missing = [value for value in self._acknowledged if value not in values]
        return [
            *(f"{value.decode()} is from another topic than {self._generation}" for value in strange),
            *(f"{value.decode()} is missing" for value in missing),
            *([f"it begins at {start}"] if start else []),
        ]

    async def _write(self, value: bytes) -> None:
        """Produce by topic name, as old clients do, so that a request may reach the next topic of the name."""
        data = bytes(batches.encode([(None, value, (), self._machine.clock.now_ms())]))
        topic = TopicData(PARTITION.topic, self._topic_id, [PartitionData(PARTITION.partition, memoryview(data))])
        while True:
            channel = await self._connect()
            answer = channel.produce(ProduceRequest(None, -1, 10_000, [topic]), PRODUCE_VERSION)
            frame = await channel.answer(answer) if answer is not None else None
            channel.close()
            if frame is not None:
                code = channel.read_produced(frame, PRODUCE_VERSION).topics[0].partitions[0].error_code
                if not code:
                    self._acknowledged.append(token(value))
                    return
            await self._pause()

    async def _delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=self._topic_id)], timeout_ms=5000)
        while True:
            channel = await self._connect()
            response = await channel.call(request, 6)
            channel.close()
            if response is not None:
                code = response.responses[0].error_code
                if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                    self._machine.world.note(NAME, f"topic {self._generation} is deleted")
                    return
                assert code == ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode(code).name
            await self._pause()

    async def _connect(self) -> Channel:
        while True:
            try:
                return await Channel.open(NAME, self._machine)
            except OSError:
                await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(0.01, PAUSE_S))
