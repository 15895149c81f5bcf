"""Record batches to the leaders of their partitions, in order, each exactly once as long as the sender lives.

Every partition is a lane. Batches get their sequence numbers when they enter it, and keep them however often they are
sent. Several may be under way in a lane: a broker takes them in the order of their numbers, or not at all. If one fails
in a way that trying again can mend, the lane waits until all that is under way in it has been answered, and then sends
again what is missing, first things first. What was written although its answer was lost is known to the broker by its
number, so it is not written twice.

Without a producer id (acks other than all) there are no numbers: then a lane has one batch under way, which keeps the
order, and a batch whose answer was lost may be there twice.

A `Sender` belongs to one thread; answers are looked at when there is no room for more, and in `flush`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.client import RETRIABLE, Cluster, TopicPartition, error_code
from ottla.client.connection import Awaited, Connection, NotAuthenticated, Unreachable
from ottla.client.patience import Patience
from ottla.client.transactions import ProducerIdentity, add_partitions, init_producer
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.wire.produce import PartitionData, PartitionResult, ProduceRequest, ProduceResponse, TopicData

ACKS_NONE, ACKS_ALL = 0, -1

IN_FLIGHT_MAX = 5
"""Batches of a partition, and requests of a broker, that are under way at once: a broker remembers five numbers."""

REQUEST_BYTES_MAX = 1024 * 1024
BUFFERED_BYTES_MAX = 32 * 1024 * 1024
DELIVERY_S = 120.0

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(slots=True)
class EncodedBatch:
    """Records of one partition, encoded. `data` has room for the batch header before the records."""

    topic: str
    partition: int
    count: int
    timestamp: int
    codec: int
    data: memoryview | bytearray


@dataclass(slots=True, eq=False)
class _Parcel:
    """A sealed batch on its way."""

    data: memoryview | bytearray
    count: int
    place: int
    """How many records came before it in its lane; its sequence number is made of it."""


@dataclass(slots=True, eq=False)
class _Lane:
    where: TopicPartition
    records: int = 0
    """That have entered it."""
    waiting: deque[_Parcel] = field(default_factory=deque)
    under_way: list[_Parcel] = field(default_factory=list)
    failed: list[_Parcel] = field(default_factory=list)
    """Answered, but to be sent again when nothing is under way any more."""
    opened: bool = False
    """A broker that does not know the producer takes any number as the first: until one batch is acknowledged, no other
    may overtake it."""
    patience: Patience | None = None
    """How long the lane has been in trouble."""
    next_offset: int = -1

    def holds_back(self, under_way_max: int) -> bool:
        """Whether nothing may be sent now."""
        return not self.waiting or bool(self.failed) or len(self.under_way) >= (under_way_max if self.opened else 1)

    def is_next(self, parcel: _Parcel) -> bool:
        return not self.failed and self.waiting[0] is parcel


class _Flight(NamedTuple):
    """A request that has been sent."""

    connection: Connection
    awaited: Awaited
    parcels: list[tuple[_Lane, _Parcel]]


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        producer: ProducerIdentity | None = None,
        *,
        acks: int = ACKS_ALL,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        delivery_s: float = DELIVERY_S,
    ) -> None:
        """Without a `producer` the sender gets an id of its own, unless `acks` says that not all replicas are asked."""
        self._cluster = cluster
        self._producer = producer
        self._acks = acks
        self._numbered = acks == ACKS_ALL
        self._request_bytes_max = request_bytes_max
        self._buffered_bytes_max = buffered_bytes_max
        self._delivery_s = delivery_s
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._flights: dict[int, deque[_Flight]] = {}
        """By broker."""
        self._waiting_bytes = 0
        self._flying_bytes = 0
        self._pause: Patience | None = None
        self._rest_is_due = False
        self._failure: KafkaError | Unreachable | None = None
        if producer is not None and not self._numbered:
            raise ValueError("a producer id needs acks=all")

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Where the log ended after the last batch that was acknowledged, for partitions that told it."""
        return {where: lane.next_offset for where, lane in self._lanes.items() if lane.next_offset >= 0}

    @property
    def buffered_bytes(self) -> int:
        """Taken over, and not acknowledged yet."""
        return self._waiting_bytes + self._flying_bytes

    def send(self, encoded: EncodedBatch) -> None:
        """Take a batch over, and wait if too much is on its way. KafkaError or Unreachable for any batch before it that
        cannot be delivered: the sender is of no use then."""
        self._refuse_after_failure()
        lane = self._lane(TopicPartition(encoded.topic, encoded.partition))
        lane.waiting.append(self._sealed(lane, encoded))
        self._waiting_bytes += len(encoded.data)
        if self._waiting_bytes >= self._request_bytes_max:
            self._keep(self._depart)
        while self.buffered_bytes > self._buffered_bytes_max:
            self._keep(self._advance)

    def send_all(self, batches: Iterable[EncodedBatch]) -> None:
        for encoded in batches:
            self.send(encoded)

    def flush(self) -> None:
        """Wait until everything has been acknowledged. Errors as `send` has them."""
        self._refuse_after_failure()
        while self.buffered_bytes:
            self._keep(self._advance)

    # Lanes

    def _lane(self, where: TopicPartition) -> _Lane:
        lane = self._lanes.get(where)
        if lane is None:
            if self._producer is None and self._numbered:
                self._producer = init_producer(self._cluster)
            if self._producer is not None:
                add_partitions(self._cluster, self._producer, [where])
            lane = self._lanes[where] = _Lane(where)
        return lane

    def _sealed(self, lane: _Lane, encoded: EncodedBatch) -> _Parcel:
        producer = self._producer or ProducerIdentity(-1, -1)
        batch.seal_client_batch(
            encoded.data,
            encoded.count,
            encoded.timestamp,
            codec=encoded.codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=self._sequence(lane.records),
            transactional=producer.is_transactional,
        )
        parcel = _Parcel(encoded.data, encoded.count, lane.records)
        lane.records += encoded.count
        return parcel

    def _sequence(self, place: int) -> int:
        return batch.sequence_after(0, place) if self._numbered else -1

    # On the way

    def _advance(self) -> None:
        """One step towards having nothing left: send what can be sent, wait for an answer, or pause."""
        self._depart()
        for node, queue in self._flights.items():
            if queue:
                self._land(node, queue)

    def _depart(self) -> None:
        """Send as many requests as there is room for."""
        self._rest()
        while cargo := self._cargo():
            for node, parcels in cargo.items():
                queue = self._flights.setdefault(node, deque())
                if len(queue) >= IN_FLIGHT_MAX:
                    self._land(node, queue)
                self._fly(node, queue, [(lane, each) for lane, each in parcels if lane.is_next(each)])

    def _cargo(self) -> dict[int, list[tuple[_Lane, _Parcel]]]:
        """What goes into the next request of each broker: at most one batch of a lane, and no more than it may hold."""
        found: dict[int, list[tuple[_Lane, _Parcel]]] = {}
        sizes: dict[int, int] = {}
        under_way_max = IN_FLIGHT_MAX if self._numbered else 1
        for lane in self._lanes.values():
            if lane.holds_back(under_way_max):
                continue
            try:
                node = self._cluster.leader(*lane.where).node
            except KafkaError as error:
                if error.code not in RETRIABLE:
                    raise
                self._trouble(lane, error)
                continue
            parcel = lane.waiting[0]
            size = sizes.get(node, 0) + len(parcel.data)
            if size <= self._request_bytes_max or node not in found:
                sizes[node] = size
                found.setdefault(node, []).append((lane, parcel))
        return found

    def _fly(self, node: int, queue: deque[_Flight], parcels: list[tuple[_Lane, _Parcel]]) -> None:
        if not parcels:
            return
        topics: dict[str, TopicData] = {}
        for lane, parcel in parcels:
            topic = topics.setdefault(lane.where.topic, TopicData(lane.where.topic))
            topic.partitions.append(PartitionData(lane.where.partition, memoryview(parcel.data)))
            lane.waiting.popleft()
            lane.under_way.append(parcel)
            self._waiting_bytes -= len(parcel.data)
            self._flying_bytes += len(parcel.data)
        producer = self._producer or ProducerIdentity(-1, -1)
        timeout_ms = int(self._cluster.client.request_timeout_s * 1000)
        request = ProduceRequest(producer.transactional_id, self._acks, timeout_ms, [*topics.values()])
        try:
            connection = self._cluster.connection(node)
            awaited = connection.send(request, producer.produce_version_max)
        except Unreachable as error:
            self._lose(node, parcels, error)
            return
        if self._acks == ACKS_NONE:
            for lane, parcel in parcels:
                self._arrived(lane, parcel)
        else:
            queue.append(_Flight(connection, awaited, parcels))

    def _land(self, node: int, queue: deque[_Flight]) -> None:
        """Wait for the oldest answer of a broker."""
        flight = queue.popleft()
        try:
            answer: ProduceResponse = flight.connection.receive(flight.awaited)
        except Unreachable as error:
            lost = [*flight.parcels, *(each for other in queue for each in other.parcels)]
            queue.clear()  # the connection is dropped: nothing of this broker will be answered any more
            self._lose(node, lost, error)
            return
        results = {
            TopicPartition(topic.name, result.index): result for topic in answer.topics for result in topic.partitions
        }
        for lane, parcel in flight.parcels:
            self._settle(lane, parcel, results.get(lane.where))
        if answer.throttle_time_ms:
            seconds = answer.throttle_time_ms / 1000
            self._cluster.patience(seconds).rest(seconds)

    # Answers

    def _settle(self, lane: _Lane, parcel: _Parcel, result: PartitionResult | None) -> None:
        if result is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{lane.where}: the broker's answer says nothing of it")
        code = error_code(result.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if result.base_offset >= 0:
                lane.next_offset = result.base_offset + parcel.count
            self._arrived(lane, parcel)
            return
        error = KafkaError(code, f"{lane.where}: {result.error_message or 'the batch was refused'}")
        behind_a_failure = bool(lane.failed) or lane.under_way[0] is not parcel
        if code in _TOO_LARGE and parcel.count > 1:
            self._failed(lane, *self._split(parcel))
            return
        if code in RETRIABLE or (behind_a_failure and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            self._cluster.forget(lane.where.topic)
            self._trouble(lane, error)
            self._failed(lane, parcel)
        else:
            raise error

    def _arrived(self, lane: _Lane, parcel: _Parcel) -> None:
        lane.under_way.remove(parcel)
        self._flying_bytes -= len(parcel.data)
        lane.opened = True
        lane.patience = self._pause = None
        self._collect(lane)

    def _failed(self, lane: _Lane, parcel: _Parcel, *behind: _Parcel) -> None:
        lane.under_way.remove(parcel)
        lane.failed += (parcel, *behind)
        self._collect(lane)

    def _collect(self, lane: _Lane) -> None:
        """Once nothing is under way any more, what has failed goes back to where it came from, in its order."""
        if lane.failed and not lane.under_way:
            lane.failed.sort(key=lambda parcel: parcel.place, reverse=True)
            lane.waiting.extendleft(lane.failed)
            size = sum(len(parcel.data) for parcel in lane.failed)
            self._flying_bytes -= size
            self._waiting_bytes += size
            lane.failed.clear()

    def _lose(self, node: int, parcels: list[tuple[_Lane, _Parcel]], error: Unreachable) -> None:
        """The connection broke: whatever was sent over it may have been written or not."""
        if isinstance(error, NotAuthenticated):
            raise error
        self._cluster.drop(node)
        for lane, parcel in parcels:
            self._cluster.forget(lane.where.topic)
            self._trouble(lane, error)
            self._failed(lane, parcel)

    def _split(self, parcel: _Parcel) -> tuple[_Parcel, _Parcel]:
        """The batch, now half as large, and the other half."""
        records = batch.decode(parcel.data)
        header = batch.read_header(parcel.data)
        middle = len(records) // 2
        halves = [
            batch.encode(
                [(each.key, each.value, each.headers, each.timestamp) for each in part],
                codec=header.codec,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=self._sequence(place),
                transactional=header.is_transactional,
            )
            for place, part in ((parcel.place, records[:middle]), (parcel.place + middle, records[middle:]))
        ]
        self._flying_bytes += sum(map(len, halves)) - len(parcel.data)
        parcel.data, parcel.count = halves[0], middle
        return parcel, _Parcel(halves[1], len(records) - middle, parcel.place + middle)

    # Trouble

    def _trouble(self, lane: _Lane, error: KafkaError | Unreachable) -> None:
        """Go on trying, unless the lane has tried for too long."""
        if lane.patience is None:
            lane.patience = self._cluster.patience(self._delivery_s)
        elif lane.patience.left_s <= 0:
            raise error
        if self._pause is None:
            self._pause = self._cluster.patience(self._delivery_s)
        self._rest_is_due = True

    def _rest(self) -> None:
        """Before something is tried again."""
        if self._rest_is_due and self._pause is not None:
            self._pause.pause()
        self._rest_is_due = False

    def _keep(self, step: Callable[[], None]) -> None:
        """Take a step; an error in it is the sender's last word."""
        try:
            step()
        except (KafkaError, Unreachable) as error:
            self._failure = error
            raise

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
