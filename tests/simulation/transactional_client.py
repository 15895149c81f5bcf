"""A transactional producer in a simulation, with transactions v1 or v2.

It repeats each request until it knows the result, or until the broker says that it must start over.
"""

import asyncio
from typing import Any

from ottla.coordinators.machine import ProducerIdentity
from ottla.errors import ErrorCode
from ottla.records.batch import encode, headers
from ottla.topic_partition import TopicPartition
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.message import Message
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData
from tests.scenarios.transactional_producer import select_visible_values
from tests.simulation.channel import Channel
from tests.simulation.world import Machine

NOBODY = ProducerIdentity(-1, -1)
READ_COMMITTED = 1
PAUSE_S = 0.02

AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class StartOver(Exception):
    """The broker said that this producer was fenced, or that its transaction has ended."""


class TransactionalClient:
    def __init__(
        self, name: str, machine: Machine, transactional_id: str, version: int, *, timeout_ms: int = 30_000
    ) -> None:
        self.name = name
        self.machine = machine
        self.transactional_id = transactional_id
        self.is_new = version == 2
        self.producer = NOBODY
        self._timeout_ms = timeout_ms
        self._channel: Channel | None = None
        self._sequences: dict[TopicPartition, int] = {}

    # A transaction

    async def init(self) -> None:
        """Become the owner of the transactional id. The broker aborts the transaction that is open."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        answer = await self.ask(request, 5)
        self._become(ProducerIdentity(answer.producer_id, answer.producer_epoch))

    def _become(self, producer: ProducerIdentity) -> None:
        if producer != self.producer:
            self._sequences.clear()
        self.producer = producer

    @property
    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer.id,
            "producer_epoch": self.producer.epoch,
        }

    async def write(self, partition: TopicPartition, value: bytes) -> None:
        if not self.is_new:
            await self.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.transactional_id,
                    v3_and_below_producer_id=self.producer.id,
                    v3_and_below_producer_epoch=self.producer.epoch,
                    v3_and_below_topics=[
                        AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
                    ],
                ),
                3,
            )
        sequence = self._sequences.get(partition, 0)
        data = encode(
            [(None, value, (), 1_000)],
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        version = 12 if self.is_new else 11
        while not await self._is_written(partition, data, version):
            await self.pause()
        self._sequences[partition] = sequence + 1

    async def _is_written(self, partition: TopicPartition, data: bytearray, version: int) -> bool:
        channel = await self.connect()
        batches = PartitionData(partition.partition, memoryview(bytearray(data)))
        request = ProduceRequest(self.transactional_id, -1, 10_000, [TopicData(partition.topic, partitions=[batches])])
        waiting = channel.produce(request, version)
        assert waiting is not None
        frame = await channel.answer(waiting)
        if frame is None:
            return False
        return self._is_settled(channel.read_produced(frame, version).topics[0].partitions[0].error_code)

    async def commit_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        if not self.is_new:
            await self.ask(AddOffsetsToTxnRequest(**self._named, group_id=group), 4)
        committed = TxnOffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset)
        topic = TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[committed])
        request = TxnOffsetCommitRequest(**self._named, group_id=group, topics=[topic])
        await self.ask(request, 5 if self.is_new else 4)

    async def end(self, *, committed: bool) -> None:
        answer = await self.ask(EndTxnRequest(**self._named, committed=committed), 5 if self.is_new else 4)
        if self.is_new:
            self._become(ProducerIdentity(answer.producer_id, answer.producer_epoch))

    # Looking

    async def read_committed(self, partition: TopicPartition) -> list[bytes]:
        """Read the whole partition with read_committed, once no transaction is open."""
        values: list[bytes] = []
        offset = 0
        while True:
            found, after, end = await self.read_some(partition, offset)
            if after == offset == end:
                return values
            values += found
            offset = after

    async def read_some(self, partition: TopicPartition, offset: int) -> tuple[list[bytes], int, int]:
        """Read committed records from an offset. Returns them, the next offset, and the high watermark (-1: no
        answer)."""
        channel = await self.connect()
        wanted = FetchPartition(partition.partition, fetch_offset=offset, max_bytes=1 << 20)
        topic = FetchTopic(partition.topic, partitions=[wanted])
        response = await channel.fetch(
            FetchRequest(max_wait_ms=100, min_bytes=1, isolation_level=READ_COMMITTED, topics=[topic]), 12
        )
        if response is None or response.topics[0].partitions[0].error_code:
            await self.pause()
            return [], offset, -1
        result = response.topics[0].partitions[0]
        data = bytes(result.records) if isinstance(result.records, memoryview | bytes | bytearray) else b""
        if not data:
            return [], offset, result.high_watermark
        after = max(header.next_offset for _, header in headers(data))
        return select_visible_values(data, result, offset), after, result.high_watermark

    async def stable_offset(self, group: str, partition: TopicPartition) -> int:
        topic = OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])
        asked = OffsetFetchRequestGroup(group_id=group, topics=[topic])
        answer = await self.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 9)
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset

    # Asking until there is an answer

    async def ask(self, message: Message, version: int) -> Any:
        while True:
            channel = await self.connect()
            answer = await channel.call(message, version)
            if answer is not None and all(self._is_settled(code) for code in codes_in(answer)):
                return answer
            await self.pause()

    def _is_settled(self, code: int) -> bool:
        if code and ErrorCode(code) not in AGAIN:
            self.machine.world.note(self.name, f"starts over: {ErrorCode(code).name}")
            raise StartOver
        return not code

    async def pause(self) -> None:
        await asyncio.sleep(PAUSE_S)

    async def connect(self) -> Channel:
        while self._channel is None or self._channel.lost:
            try:
                self._channel = await Channel.open(self.name, self.machine)
            except OSError:
                await self.pause()
        return self._channel


def codes_in(value: Any) -> list[int]:
    """Every error code in an answer."""
    if isinstance(value, list):
        return [code for each in value for code in codes_in(each)]
    if not isinstance(value, Message):
        return []
    own = [getattr(value, name) for name in ("error_code", "partition_error_code") if hasattr(value, name)]
    return own + [code for row in value.FIELDS for code in codes_in(getattr(value, row[0]))]
