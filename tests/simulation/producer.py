"""A producer in a simulation: several batches in flight, and a record of what became of each.

With idempotence it behaves as Kafka's own producer: up to five batches in flight. After a lost connection, a time-out
or a retriable error, everything without an answer is sent again, in order, with the same sequence numbers. If the
broker says that the sequence number does not fit, the producer asks for a new producer id and gives up the batches that
had no answer. The first batch is sent alone: a broker that does not know a producer accepts any sequence number, as
Kafka does, so the second batch must not arrive if the first one failed. Without idempotence nothing is sent twice.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from random import Random

from ottla.errors import ErrorCode
from ottla.records import batch as batches
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData
from tests.simulation.channel import Channel
from tests.simulation.history import PADDING, Acknowledged, Batch, Refused, Sent, token
from tests.simulation.world import Machine

IN_FLIGHT_MAX = 5
RECORDS_MAX = 6
VALUE_BYTES_MAX = 700
CODECS = (0, 0, 0, 1, 2, 3, 4)
DENSE_CODECS = (1, 3, 4)
LARGE_BYTES = 200_000
LARGE_CHANCE = 0.05
"""Size and share of batches that compress well, and are so large that the broker checks them in a thread."""

FATAL = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
RETRIABLE = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


@dataclass(frozen=True, slots=True)
class Style:
    """How a producer sends."""

    idempotent: bool
    acks: int
    pause_s: float
    by_id: bool
    keys: int = 0
    """How many different keys the records have; 0 if they have none."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A batch of the history, and its encoded bytes."""

    batch: Batch
    data: bytes


class Producer:
    def __init__(
        self, name: str, machine: Machine, partition: TopicPartition, topic_id: bytes, style: Style, random: Random
    ) -> None:
        self.name = name
        self._machine = machine
        self._world = machine.world
        self._partition = partition
        self._topic_id = topic_id
        self._style = style
        self._random = random
        self._unanswered: deque[Letter] = deque()
        self._identity = 0
        self._producer_id = -1
        self._known = False  # whether the broker has accepted a batch with this producer id
        self._sequence = 0
        self._batches = 0
        self._records = 0

    async def run(self, count: int) -> None:
        """Send this many batches. Returns when each has an answer or was given up."""
        while self._batches < count or self._unanswered:
            try:
                channel = await Channel.open(self.name, self._machine)
            except OSError:
                await asyncio.sleep(self._random.uniform(0.01, 0.5))
                continue
            if not self._style.idempotent:
                self._identity += 1
            if await self._introduce(channel):
                await self._send_over(channel, count)
            channel.close()
            await asyncio.sleep(self._random.uniform(0, 0.1))

    async def _introduce(self, channel: Channel) -> bool:
        if not self._style.idempotent or self._producer_id >= 0:
            return True
        response = await channel.call(InitProducerIdRequest(), 4)
        if response is None or response.error_code:
            return False
        self._producer_id = response.producer_id
        self._identity += 1
        self._sequence = 0
        return True

    async def _send_over(self, channel: Channel, count: int) -> None:
        """Send batches until the connection is lost or an answer has an error."""
        flying: deque[asyncio.Future[bytes | None]] = deque()
        again = deque(self._unanswered)
        while again or flying or self._batches < count:
            while len(flying) < self._in_flight_max and (again or self._batches < count):
                if not again and self._random.random() < 0.3:
                    await asyncio.sleep(self._random.uniform(0, self._style.pause_s))
                letter = again.popleft() if again else self._write_letter()
                answer = channel.produce(self._request(letter), self._version)
                if answer is not None:
                    flying.append(answer)
                elif channel.lost:
                    return
            if flying and not await self._settle(channel, flying.popleft()):
                return

    @property
    def _in_flight_max(self) -> int:
        return IN_FLIGHT_MAX if self._known or not self._style.idempotent else 1

    @property
    def _version(self) -> int:
        return 13 if self._style.by_id else 12

    def _request(self, letter: Letter) -> ProduceRequest:
        partition = PartitionData(self._partition.partition, memoryview(letter.data))
        topic = TopicData("" if self._style.by_id else self._partition.topic, self._topic_id, [partition])
        return ProduceRequest(None, self._style.acks, 10_000, [topic])

    def _write_letter(self) -> Letter:
        values, codec = self._write_values(), self._random.choice(CODECS)
        if self._random.random() < LARGE_CHANCE:
            values, codec = [values[0] + PADDING * LARGE_BYTES], self._random.choice(DENSE_CODECS)
        tokens, keys = tuple(map(token, values)), tuple(map(self._key, values))
        batch = Batch(self.name, self._identity, self._batches, self._partition, tokens, self._style.idempotent, keys)
        self._batches += 1
        now_ms = self._machine.clock.now_ms()
        data = batches.encode(
            [(key, value, (), now_ms) for key, value in zip(keys, values, strict=True)],
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=0 if self._style.idempotent else -1,
            base_sequence=self._sequence if self._style.idempotent else -1,
        )
        self._sequence += len(values)
        letter = Letter(batch, bytes(data))
        self._world.record(self.name, Sent(batch))
        if self._style.acks:
            self._unanswered.append(letter)
        return letter

    def _key(self, value: bytes) -> bytes | None:
        return b"key-%d" % self._random.randrange(self._style.keys) if self._style.keys else None

    def _write_values(self) -> list[bytes]:
        values = []
        for _ in range(self._random.randint(1, RECORDS_MAX)):
            self._records += 1
            padding = self._random.randint(0, self._random.choice((10, VALUE_BYTES_MAX)))
            values.append(f"{self.name}.{self._records}.".encode() + PADDING * padding)
        return values

    async def _settle(self, channel: Channel, answer: "asyncio.Future[bytes | None]") -> bool:
        """Handle the answer to the oldest batch in flight. Returns whether the connection can still be used."""
        frame = await channel.answer(answer)
        if frame is None:
            self._give_up_unless_idempotent()
            return False
        result = channel.read_produced(frame, self._version).topics[0].partitions[0]
        code = ErrorCode(result.error_code)
        batch = self._unanswered[0].batch
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            offset = None if code else result.base_offset
            self._known = True
            self._unanswered.popleft()
            self._world.record(self.name, Acknowledged(batch, channel.life, offset))
            return True
        self._world.note(self.name, f"{batch}: {code.name}")
        if code in FATAL:
            self._world.record(self.name, Refused(batch, channel.life, code.name))
            self._unanswered.clear()
            self._producer_id = -1
            self._known = False
        else:
            assert code in RETRIABLE, f"{batch}: {code.name}"
            self._give_up_unless_idempotent()
            await asyncio.sleep(self._random.uniform(0.01, 0.3))
        return False

    def _give_up_unless_idempotent(self) -> None:
        """Drop the batches in flight, if they may not be sent twice. Nobody learns whether they were written."""
        if not self._style.idempotent:
            self._unanswered.clear()
