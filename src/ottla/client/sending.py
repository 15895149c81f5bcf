"""Sends record batches to the leaders of their partitions, in order and without duplicates while the sender lives.

The batches of one partition form a lane. A batch gets its sequence numbers when it enters the lane and keeps them
however often it is sent. Several batches of a lane may be in flight: a broker accepts them in the order of their
numbers, or not at all. After a retriable error the lane waits until everything in flight has been answered, then sends
again what is missing, oldest first. A batch that was written although its answer was lost is recognised by the broker
by its sequence numbers and not written again.

Without a producer id (acks other than all) there are no sequence numbers. A lane then has one batch in flight, which
keeps the order, and a batch whose answer was lost may be written twice.

A `Sender` belongs to one thread. It reads answers in `flush`, and in `send` when too many bytes are buffered.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.backoff import Backoff
from ottla.client.client import RETRIABLE, Client, error_code
from ottla.client.connection import Awaited, Connection, NotAuthenticated, Unreachable
from ottla.client.transactions import ProducerIdentity, add_partitions, init_producer
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest, ProduceResponse, TopicData

ACKS_NONE, ACKS_ALL = 0, -1

IN_FLIGHT_MAX = 5
"""Batches in flight per partition, and requests per broker: a broker remembers the last five batches of a producer."""

REQUEST_BYTES_MAX = 1024 * 1024
BUFFERED_BYTES_MAX = 32 * 1024 * 1024
DELIVERY_S = 120.0

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(slots=True)
class EncodedBatch:
    """Encoded records of one partition. `data` begins with space for the batch header, which `send` writes."""

    topic: str
    partition: int
    count: int
    timestamp: int
    """The timestamp of the first record. Those of the others are stored relative to it."""
    codec: int
    data: memoryview | bytearray
    timestamp_max: int | None = None
    """The highest timestamp; None if all records have the same one."""


@dataclass(frozen=True, slots=True)
class OffsetRun:
    """Records with consecutive offsets."""

    first: int
    """-1 if the broker has not said it, because it had the records already."""
    count: int


@dataclass(slots=True, eq=False)
class _SealedBatch:
    """A batch with its header and sequence numbers, ready to be sent."""

    data: memoryview | bytearray
    count: int
    records_before: int
    """How many records entered the lane before it; its base sequence follows from this."""


@dataclass(slots=True, eq=False)
class _Lane:
    where: TopicPartition
    records: int = 0
    """How many records have entered the lane."""
    waiting: deque[_SealedBatch] = field(default_factory=deque)
    in_flight: list[_SealedBatch] = field(default_factory=list)
    failed: list[_SealedBatch] = field(default_factory=list)
    """Batches to send again when nothing is in flight any more."""
    opened: bool = False
    """Whether a batch was acknowledged. A broker that does not know the producer accepts any first sequence number, so
    until then only one batch may be in flight."""
    backoff: Backoff | None = None
    """Runs since the first failure; None after a success."""
    next_offset: int = -1
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)
    """`records_before`, first offset (-1 if the broker has not said it) and number of records of each batch."""

    def holds_back(self, in_flight_max: int) -> bool:
        """Whether no batch of the lane may be sent now."""
        return not self.waiting or bool(self.failed) or len(self.in_flight) >= (in_flight_max if self.opened else 1)

    def is_next(self, sealed: _SealedBatch) -> bool:
        return not self.failed and self.waiting[0] is sealed


class _SentRequest(NamedTuple):
    """A produce request that is waiting for its answer."""

    connection: Connection
    awaited: Awaited
    batches: list[tuple[_Lane, _SealedBatch]]


class Sender:
    def __init__(
        self,
        client: Client,
        producer: ProducerIdentity | None = None,
        *,
        acks: int = ACKS_ALL,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        delivery_s: float = DELIVERY_S,
    ) -> None:
        """Without a `producer`, the sender asks for a producer id of its own if `acks` is ACKS_ALL."""
        self._client = client
        self._producer = producer
        self._acks = acks
        self._has_sequences = acks == ACKS_ALL
        self._request_bytes_max = request_bytes_max
        self._buffered_bytes_max = buffered_bytes_max
        self._delivery_s = delivery_s
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._sent_requests: dict[int, deque[_SentRequest]] = {}
        """The requests without an answer, by broker."""
        self._waiting_bytes = 0
        self._in_flight_bytes = 0
        self._backoff: Backoff | None = None
        self._pause_is_due = False
        self._failure: KafkaError | Unreachable | None = None
        if producer is not None and not self._has_sequences:
            raise ValueError("a producer id needs acks=all")

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The offset after the last acknowledged batch, for each partition whose leader has returned an offset."""
        return {where: lane.next_offset for where, lane in self._lanes.items() if lane.next_offset >= 0}

    def find_runs(self) -> "dict[TopicPartition, list[OffsetRun]]":
        """Where the acknowledged records are, in the order in which they were sent; whole after `flush`."""
        return {
            where: [OffsetRun(first, count) for _, first, count in sorted(lane.acknowledged)]
            for where, lane in self._lanes.items()
        }

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were given to `send` and are not acknowledged yet."""
        return self._waiting_bytes + self._in_flight_bytes

    def send(self, encoded: EncodedBatch) -> None:
        """Take a batch, and wait if too many bytes are buffered.

        Raises KafkaError or Unreachable if an earlier batch cannot be delivered; the sender is unusable from then on.
        """
        self._refuse_after_failure()
        lane = self._find_lane(TopicPartition(encoded.topic, encoded.partition))
        lane.waiting.append(self._seal(lane, encoded))
        self._waiting_bytes += len(encoded.data)
        if self._waiting_bytes >= self._request_bytes_max:
            self._run_step(self._send_ready)
        while self.buffered_bytes > self._buffered_bytes_max:
            self._run_step(self._advance)

    def send_all(self, batches: Iterable[EncodedBatch]) -> None:
        for encoded in batches:
            self.send(encoded)

    def flush(self) -> None:
        """Wait until everything has been acknowledged. Raises what `send` raises."""
        self._refuse_after_failure()
        while self.buffered_bytes:
            self._run_step(self._advance)

    # Lanes

    def _find_lane(self, where: TopicPartition) -> _Lane:
        lane = self._lanes.get(where)
        if lane is None:
            if self._producer is None and self._has_sequences:
                self._producer = init_producer(self._client)
            if self._producer is not None:
                add_partitions(self._client, self._producer, [where])
            lane = self._lanes[where] = _Lane(where)
        return lane

    def _seal(self, lane: _Lane, encoded: EncodedBatch) -> _SealedBatch:
        producer = self._producer or ProducerIdentity(-1, -1)
        batch.seal_client_batch(
            encoded.data,
            encoded.count,
            encoded.timestamp,
            codec=encoded.codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=self._find_sequence(lane.records),
            transactional=producer.is_transactional,
            timestamp_max=encoded.timestamp_max,
        )
        sealed = _SealedBatch(encoded.data, encoded.count, lane.records)
        lane.records += encoded.count
        return sealed

    def _find_sequence(self, records_before: int) -> int:
        return batch.sequence_after(0, records_before) if self._has_sequences else -1

    # Requests

    def _advance(self) -> None:
        """Send what can be sent, then wait for one answer of each broker."""
        self._send_ready()
        for node, queue in self._sent_requests.items():
            if queue:
                self._receive_answer(node, queue)

    def _send_ready(self) -> None:
        """Send as many requests as the limits on batches and requests in flight allow."""
        self._pause_if_due()
        while chosen := self._choose_batches():
            for node, batches in chosen.items():
                queue = self._sent_requests.setdefault(node, deque())
                if len(queue) >= IN_FLIGHT_MAX:
                    self._receive_answer(node, queue)
                self._send_request(node, queue, [(lane, each) for lane, each in batches if lane.is_next(each)])

    def _choose_batches(self) -> dict[int, list[tuple[_Lane, _SealedBatch]]]:
        """The next request of each broker: at most one batch of each lane, and at most `request_bytes_max`."""
        found: dict[int, list[tuple[_Lane, _SealedBatch]]] = {}
        sizes: dict[int, int] = {}
        in_flight_max = IN_FLIGHT_MAX if self._has_sequences else 1
        for lane in self._lanes.values():
            if lane.holds_back(in_flight_max):
                continue
            try:
                node = self._client.find_leader(*lane.where).node
            except KafkaError as error:
                if error.code not in RETRIABLE:
                    raise
                self._note_failure(lane, error)
                continue
            sealed = lane.waiting[0]
            size = sizes.get(node, 0) + len(sealed.data)
            if size <= self._request_bytes_max or node not in found:
                sizes[node] = size
                found.setdefault(node, []).append((lane, sealed))
        return found

    def _send_request(self, node: int, queue: deque[_SentRequest], batches: list[tuple[_Lane, _SealedBatch]]) -> None:
        if not batches:
            return
        topics: dict[str, TopicData] = {}
        for lane, sealed in batches:
            topic = topics.setdefault(lane.where.topic, TopicData(lane.where.topic))
            topic.partitions.append(PartitionData(lane.where.partition, memoryview(sealed.data)))
            lane.waiting.popleft()
            lane.in_flight.append(sealed)
            self._waiting_bytes -= len(sealed.data)
            self._in_flight_bytes += len(sealed.data)
        producer = self._producer or ProducerIdentity(-1, -1)
        timeout_ms = int(self._client.settings.request_timeout_s * 1000)
        request = ProduceRequest(producer.transactional_id, self._acks, timeout_ms, [*topics.values()])
        try:
            connection = self._client.connect(node)
            awaited = connection.send(request, producer.produce_version_max)
        except Unreachable as error:
            self._handle_lost_connection(node, batches, error)
            return
        if self._acks == ACKS_NONE:
            for lane, sealed in batches:
                self._mark_acknowledged(lane, sealed)
        else:
            queue.append(_SentRequest(connection, awaited, batches))

    def _receive_answer(self, node: int, queue: deque[_SentRequest]) -> None:
        """Wait for the oldest outstanding answer of a broker."""
        sent = queue.popleft()
        try:
            answer: ProduceResponse = sent.connection.receive(sent.awaited)
        except Unreachable as error:
            lost = [*sent.batches, *(each for other in queue for each in other.batches)]
            queue.clear()  # the connection is dropped: nothing of this broker will be answered any more
            self._handle_lost_connection(node, lost, error)
            return
        results = {
            TopicPartition(topic.name, result.index): result for topic in answer.topics for result in topic.partitions
        }
        for lane, sealed in sent.batches:
            self._handle_result(lane, sealed, results.get(lane.where))
        if answer.throttle_time_ms:
            seconds = answer.throttle_time_ms / 1000
            self._client.start_backoff(seconds).throttle(seconds)

    # Answers

    def _handle_result(self, lane: _Lane, sealed: _SealedBatch, result: PartitionResult | None) -> None:
        if result is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{lane.where}: the broker's answer does not mention it")
        code = error_code(result.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if result.base_offset >= 0:
                lane.next_offset = result.base_offset + sealed.count
            lane.acknowledged.append((sealed.records_before, result.base_offset, sealed.count))
            self._mark_acknowledged(lane, sealed)
            return
        error = KafkaError(code, f"{lane.where}: {result.error_message or 'the batch was refused'}")
        behind_a_failure = bool(lane.failed) or lane.in_flight[0] is not sealed
        if code in _TOO_LARGE and sealed.count > 1:
            self._mark_failed(lane, *self._split(sealed))
            return
        if code in RETRIABLE or (behind_a_failure and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            self._client.forget_topic(lane.where.topic)
            self._note_failure(lane, error)
            self._mark_failed(lane, sealed)
        else:
            raise error

    def _mark_acknowledged(self, lane: _Lane, sealed: _SealedBatch) -> None:
        lane.in_flight.remove(sealed)
        self._in_flight_bytes -= len(sealed.data)
        lane.opened = True
        lane.backoff = self._backoff = None
        self._requeue_failed(lane)

    def _mark_failed(self, lane: _Lane, sealed: _SealedBatch, *behind: _SealedBatch) -> None:
        lane.in_flight.remove(sealed)
        lane.failed += (sealed, *behind)
        self._requeue_failed(lane)

    def _requeue_failed(self, lane: _Lane) -> None:
        """Put failed batches back at the head of the lane, in order, once nothing is in flight."""
        if lane.failed and not lane.in_flight:
            lane.failed.sort(key=lambda sealed: sealed.records_before, reverse=True)
            lane.waiting.extendleft(lane.failed)
            size = sum(len(sealed.data) for sealed in lane.failed)
            self._in_flight_bytes -= size
            self._waiting_bytes += size
            lane.failed.clear()

    def _handle_lost_connection(self, node: int, batches: list[tuple[_Lane, _SealedBatch]], error: Unreachable) -> None:
        """Send the requests of a broken connection again: it is unknown which of them the broker has handled."""
        if isinstance(error, NotAuthenticated):
            raise error
        self._client.disconnect(node)
        for lane, sealed in batches:
            self._client.forget_topic(lane.where.topic)
            self._note_failure(lane, error)
            self._mark_failed(lane, sealed)

    def _split(self, sealed: _SealedBatch) -> tuple[_SealedBatch, _SealedBatch]:
        """Halve a batch that is too large. The first half replaces it; the second is new."""
        records = batch.decode(sealed.data)
        header = batch.read_header(sealed.data)
        middle = len(records) // 2
        halves = [
            batch.encode(
                [(each.key, each.value, each.headers, each.timestamp) for each in part],
                codec=header.codec,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=self._find_sequence(records_before),
                transactional=header.is_transactional,
            )
            for records_before, part in (
                (sealed.records_before, records[:middle]),
                (sealed.records_before + middle, records[middle:]),
            )
        ]
        self._in_flight_bytes += sum(map(len, halves)) - len(sealed.data)
        sealed.data, sealed.count = halves[0], middle
        return sealed, _SealedBatch(halves[1], len(records) - middle, sealed.records_before + middle)

    # Failures

    def _note_failure(self, lane: _Lane, error: KafkaError | Unreachable) -> None:
        """Schedule a retry; raises `error` if the lane has been failing for longer than the delivery timeout."""
        if lane.backoff is None:
            lane.backoff = self._client.start_backoff(self._delivery_s)
        elif lane.backoff.left_s <= 0:
            raise error
        if self._backoff is None:
            self._backoff = self._client.start_backoff(self._delivery_s)
        self._pause_is_due = True

    def _pause_if_due(self) -> None:
        """Pause before a retry, if something failed since the last request."""
        if self._pause_is_due and self._backoff is not None:
            self._backoff.pause()
        self._pause_is_due = False

    def _run_step(self, step: Callable[[], None]) -> None:
        """Run a step. If it raises, the sender raises the same error from then on."""
        try:
            step()
        except (KafkaError, Unreachable) as error:
            self._failure = error
            raise

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
