"""A consumer in a simulation: reads partitions from their beginning, with a fetch session, and records what it saw."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from ottla.errors import ErrorCode
from ottla.records import batch as batches
from ottla.topic_partition import TopicPartition
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionResult
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.simulation.channel import Channel
from tests.simulation.history import Fetched, OutOfRange, token
from tests.simulation.world import Machine

BY_NAME, BY_ID = 12, 17
NO_SESSION = -1
EARLIEST = -2
FETCHES_MAX = 10_000

Records = tuple[tuple[int, bytes], ...]


class Consumer:
    def __init__(
        self,
        name: str,
        machine: Machine,
        topic_ids: Mapping[str, bytes],
        partitions: Sequence[TopicPartition],
        random: Random,
    ) -> None:
        self.name = name
        self._machine = machine
        self._world = machine.world
        self._names = {topic_id: topic for topic, topic_id in topic_ids.items()}
        self._topic_ids = topic_ids
        self._random = random
        self._version = random.choice((BY_NAME, BY_ID))
        self._isolation_level = random.randrange(2)
        self._uses_sessions = random.random() < 0.7
        self._positions = dict.fromkeys(partitions, 0)
        self._session_id = 0
        self._session_epoch = 0
        self._session_positions: dict[
            TopicPartition, int
        ] = {}  # the positions that the broker keeps in the fetch session
        self.stopped = False

    async def run(self) -> None:
        """Fetch until `stopped` is set."""
        while not self.stopped:
            try:
                channel = await Channel.open(self.name, self._machine)
            except OSError:
                await asyncio.sleep(self._random.uniform(0.01, 0.5))
                continue
            self._forget_session()
            while not self.stopped and await self._fetch(channel):
                if self._random.random() < 0.2:
                    await asyncio.sleep(self._random.uniform(0, 0.5))
            channel.close()
            await asyncio.sleep(self._random.uniform(0, 0.2))

    def _forget_session(self) -> None:
        self._session_id = 0
        self._session_epoch = 0 if self._uses_sessions else NO_SESSION
        self._session_positions = {}

    def _request(self) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for partition, position in self._positions.items():
            if self._session_epoch <= 0 or self._session_positions.get(partition) != position:
                topic_id = self._topic_ids[partition.topic]
                topic = topics.setdefault(partition.topic, FetchTopic(partition.topic, topic_id))
                max_bytes = self._random.choice((1, 1000, 10_000, 1 << 20))
                topic.partitions.append(FetchPartition(partition.partition, fetch_offset=position, max_bytes=max_bytes))
                self._session_positions[partition] = position
        return FetchRequest(
            max_wait_ms=self._random.choice((0, 100, 1000)),
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self._isolation_level,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
        )

    async def _fetch(self, channel: Channel) -> bool:
        response = await channel.fetch(self._request(), self._version)
        if response is None:
            return False
        if response.error_code:
            self._world.note(self.name, f"fetch: {ErrorCode(response.error_code).name}")
            self._forget_session()
            return True
        if self._uses_sessions:
            self._session_id = response.session_id
            self._session_epoch = self._session_epoch + 1 if response.session_id else 0
        good = True
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name or self._names[topic.topic_id], result.index)
                if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    good = await self._begin_again(channel, partition) and good
                else:
                    good = self._take(channel, partition, result) and good
        return good

    async def _begin_again(self, channel: Channel, partition: TopicPartition) -> bool:
        self._world.record(self.name, OutOfRange(self.name, partition, channel.life, self._positions[partition]))
        start = await find_start(channel, partition)
        self._positions[partition] = start or 0
        return start is not None

    def _take(self, channel: Channel, partition: TopicPartition, result: PartitionResult) -> bool:
        """Handle one partition of an answer. Returns False after an error that would repeat on this connection."""
        position = self._positions[partition]
        if result.error_code:
            self._world.note(self.name, f"{partition}: {ErrorCode(result.error_code).name}")
            return False
        records, self._positions[partition] = read_records(result, position)
        self._world.record(
            self.name, Fetched(self.name, partition, channel.life, position, records, result.high_watermark)
        )
        return True


def read_records(result: PartitionResult, position: int) -> tuple[Records, int]:
    """Read offsets and tokens of values from `position` on, and check every checksum. Returns also the next position.

    A batch of which compaction left no record still has offsets to pass over.
    """
    data = result.records
    assert data is None or isinstance(data, bytes | bytearray | memoryview)
    if not data:
        return (), position
    found, after = [], position
    for at, header in batches.headers(data):
        batches.check(data, at)
        found += [(record.offset, token(record.value or b"")) for record in batches.decode(data, at)]
        after = header.next_offset
    return tuple(pair for pair in found if pair[0] >= position), after


async def read_log(machine: Machine, partition: TopicPartition) -> tuple[int, Records]:
    """Read a whole partition after the last fault. Returns where the log begins, and all its records."""
    channel = await Channel.open("reader", machine)
    start = await find_start(channel, partition)
    assert start is not None, f"no answer to where {partition} begins"
    position, found = start, list[tuple[int, bytes]]()
    for _ in range(FETCHES_MAX):
        wanted = FetchPartition(partition.partition, fetch_offset=position, max_bytes=1 << 20)
        topic = FetchTopic(partition.topic, partitions=[wanted])
        response = await channel.fetch(FetchRequest(max_wait_ms=3000, min_bytes=1, topics=[topic]), BY_NAME)
        assert response is not None, f"no answer while reading {partition}"
        result = response.topics[0].partitions[0]
        if result.error_code:
            raise AssertionError(f"{partition} cannot be read: {ErrorCode(result.error_code).name}")
        records, after = read_records(result, position)
        if after == position:
            channel.close()
            return start, tuple(found)
        found += records
        position = after
    raise AssertionError(f"{partition} has no end")


async def find_start(channel: Channel, partition: TopicPartition) -> int | None:
    """Find where the partition begins. None if there was no answer, or if the broker is not ready."""
    asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=EARLIEST)
    topic = ListOffsetsTopic(name=partition.topic, partitions=[asked])
    response = await channel.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
    if response is None or response.topics[0].partitions[0].error_code:
        return None
    return int(response.topics[0].partitions[0].offset)
