"""Transactions on a broker that dies in any one of its disk operations: hard case 38.

The work: a producer writes one transaction after the other into two topics and commits a group's offset with each; some
it aborts. Whenever the broker is gone it comes back, and the producer asks again until it knows how its transaction
ended, or starts over. In the end every transaction must be there as a whole or not at all, as the producer was told;
the group's offset must be that of the last one that was committed; and nothing may be left open.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ottla.batch import encode, headers
from ottla.coordinators.machine import Producer
from ottla.errors import ErrorCode
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
from tests.scenarios.transacting import visible
from tests.simulation import admin
from tests.simulation.channel import Channel
from tests.simulation.crash_points import CrashPoint, Outcome
from tests.simulation.history import Ending
from tests.simulation.loop import simulate
from tests.simulation.world import Machine, World

ID, GROUP = "copier", "group"
TOPICS = ("left", "right")
TRANSACTIONS = 6
ABORTED = (2, 4)
BROKER = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.flush.interval.messages": "1",
}
PATIENCE_S = 600.0
NOBODY = Producer(-1, -1)

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
    """The broker says that this producer, or its transaction, is no more."""


@dataclass
class Copier:
    """A transactional producer of either version."""

    machine: Machine
    version: int
    producer: Producer = NOBODY
    channel: Channel | None = None
    sequences: dict[str, int] = field(default_factory=dict)
    told: dict[int, bool] = field(default_factory=dict)
    """How each transaction ended, where the broker said so."""

    async def run(self) -> None:
        number = 0
        while number < TRANSACTIONS:
            try:
                if self.producer == NOBODY:
                    await self.init()
                await self.transact(number)
                self.told[number] = number not in ABORTED
            except StartOver:
                self.producer = NOBODY
            number += 1

    async def init(self) -> None:
        answer = await self.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=30_000), 5)
        self.become(Producer(answer.producer_id, answer.producer_epoch))

    def become(self, producer: Producer) -> None:
        if producer != self.producer:
            self.sequences.clear()
        self.producer = producer

    async def transact(self, number: int) -> None:
        for topic in TOPICS:
            await self.write(topic, b"%d" % number)
        await self.commit_offset(number)
        answer = await self.ask(EndTxnRequest(**self.named, committed=number not in ABORTED), 5 if self.is_new else 4)
        if self.is_new:
            self.become(Producer(answer.producer_id, answer.producer_epoch))

    @property
    def is_new(self) -> bool:
        return self.version == 2

    @property
    def named(self) -> dict[str, Any]:
        return {"transactional_id": ID, "producer_id": self.producer.id, "producer_epoch": self.producer.epoch}

    async def write(self, topic: str, value: bytes) -> None:
        if not self.is_new:
            await self.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=ID,
                    v3_and_below_producer_id=self.producer.id,
                    v3_and_below_producer_epoch=self.producer.epoch,
                    v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
                ),
                3,
            )
        sequence = self.sequences.get(topic, 0)
        data = encode(
            [(None, value, (), 1_000)],
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        version = 12 if self.is_new else 11
        while True:
            channel = await self.connected()
            request = ProduceRequest(
                ID, -1, 10_000, [TopicData(topic, partitions=[PartitionData(0, memoryview(bytearray(data)))])]
            )
            waiting = channel.produce(request, version)
            assert waiting is not None
            frame = await channel.answer(waiting)
            if frame is not None:
                code = channel.read_produced(frame, version).topics[0].partitions[0].error_code
                if self.is_settled(code):
                    break
            await self.pause()
        self.sequences[topic] = sequence + 1

    async def commit_offset(self, number: int) -> None:
        if not self.is_new:
            await self.ask(AddOffsetsToTxnRequest(**self.named, group_id=GROUP), 4)
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number)
        topic = TxnOffsetCommitRequestTopic(name="left", partitions=[partition])
        await self.ask(
            TxnOffsetCommitRequest(**self.named, group_id=GROUP, topics=[topic]), 5 if self.is_new else 4
        )

    # Asking until there is an answer

    async def ask(self, message: Message, version: int) -> Any:
        while True:
            channel = await self.connected()
            answer = await channel.call(message, version)
            if answer is not None and all(self.is_settled(code) for code in codes_in(answer)):
                return answer
            await self.pause()

    def is_settled(self, code: int) -> bool:
        if code and ErrorCode(code) not in AGAIN:
            self.machine.world.note(ID, f"starts over: {ErrorCode(code).name}")
            raise StartOver
        return not code

    async def pause(self) -> None:
        await asyncio.sleep(0.02)

    async def connected(self) -> Channel:
        while self.channel is None or self.channel.lost:
            try:
                self.channel = await Channel.open(ID, self.machine)
            except OSError:
                await self.pause()
        return self.channel


def codes_in(value: Any) -> list[int]:
    """Every error code of an answer."""
    if isinstance(value, list):
        return [code for each in value for code in codes_in(each)]
    if not isinstance(value, Message):
        return []
    own = [getattr(value, name) for name in ("error_code", "partition_error_code") if hasattr(value, name)]
    return own + [code for row in value.FIELDS for code in codes_in(getattr(value, row[0]))]


# What must be found in the end


async def problems_of(copier: Copier) -> list[str]:
    found = [await read_committed(copier, topic) for topic in TOPICS]
    problems = []
    if found[0] != found[1]:
        problems.append(f"a transaction is there in part: {found[0]} and {found[1]}")
    numbers = [int(value) for value in found[0]]
    if numbers != sorted(set(numbers)):
        problems.append(f"not once, or not in order: {numbers}")
    for number, committed in copier.told.items():
        if committed != (number in numbers):
            problems.append(f"transaction {number}: told {committed}, found {number in numbers}")
    offset = await group_offset(copier)
    if offset != (numbers[-1] if numbers else -1):
        problems.append(f"the group is at {offset}, the last transaction is {numbers[-1:]}")
    return problems


async def read_committed(copier: Copier, topic: str) -> list[bytes]:
    """All of it, once nothing is open any more."""
    values: list[bytes] = []
    offset = 0
    while True:
        channel = await copier.connected()
        wanted = FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=offset, max_bytes=1 << 20)])
        response = await channel.fetch(FetchRequest(max_wait_ms=100, isolation_level=1, topics=[wanted]), 12)
        if response is None or response.topics[0].partitions[0].error_code:
            await copier.pause()
            continue
        result = response.topics[0].partitions[0]
        data = bytes(result.records) if isinstance(result.records, memoryview | bytes | bytearray) else b""
        if data:
            values += visible(data, result, offset)
            offset = max(header.next_offset for _, header in headers(data))
        elif offset == result.high_watermark:
            return values


async def group_offset(copier: Copier) -> int:
    asked = OffsetFetchRequestGroup(
        group_id=GROUP, topics=[OffsetFetchRequestTopics(name="left", partition_indexes=[0])]
    )
    answer = await copier.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 9)
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


# A run


def count_operations(version: int) -> int:
    outcome = run(version, None)
    assert not outcome.problems, outcome.problems
    return outcome.operations


def run(version: int, point: CrashPoint | None) -> Outcome:
    return simulate(_run(version, point))


async def _run(version: int, point: CrashPoint | None) -> Outcome:
    world = World(0)
    operations = 0
    try:
        machine = world.add_machine("broker-1", BROKER)
        assert await machine.start()
        for topic in TOPICS:
            await admin.create_topic(machine, topic, 1, {}, world.random("topics"))
        begun = machine.disk.operations
        if point is not None:
            machine.disk.crash_at(begun + point.operation)
            machine.disk.random.seed(f"{point}")
            machine.ending_next = point.ending
        copier = Copier(machine, version)
        try:
            async with asyncio.timeout(PATIENCE_S):
                reviving = asyncio.get_running_loop().create_task(_revive(machine))
                await copier.run()
                operations = machine.disk.operations - begun
                machine.disk.heal()
                if point is not None and machine.process is not None:
                    machine.crash(Ending.KILL)
                await copier.init()  # the next owner: what is open is aborted
                problems = await problems_of(copier)
                reviving.cancel()
                await asyncio.wait([reviving])
        except TimeoutError:
            problems = ["STUCK"]
        problems += [f"SURPRISE {surprise}" for surprise in world.surprises]
        return Outcome(operations, problems, list(world.trace.lines))
    finally:
        world.close()


async def _revive(machine: Machine) -> None:
    while True:
        await machine.down.wait()
        await machine.start()
