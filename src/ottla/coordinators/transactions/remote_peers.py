"""How the brokers of a cluster reach each other about transactions: WriteTxnMarkers and AddPartitionsToTxn.

This broker itself is called directly, any other one over its connection of `replication/peers.py`. Everything that
waits for the same broker goes into one request, and few requests to a broker are in flight: the busier a broker is, the
more markers or transactions a request carries.

A broker that cannot be reached, or whose answer does not come in time, is an error that the caller retries. The caller
looks at the metadata again then, because the leader may be another broker by now. The request may still arrive there
much later, when the transaction is over: requests with markers say what they are for (`ottla.wire.extended`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.coordinators.machine import ProducerIdentity
from ottla.coordinators.transactions.peers import LocalCoordinator, LocalMarkers, MarkerResult, retrieve_exception
from ottla.coordinators.transactions.transaction import group_by_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.transactions import TransactionMarker
from ottla.topic_partition import TopicPartition
from ottla.wire.extended.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.message import ZERO_UUID, Message
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersResponse
from ottla.wire.peer import PeerConnection, PeerUnavailable

W = TypeVar("W")

IN_FLIGHT_MAX = 2
"""Requests to one broker that wait for an answer at the same time: one is replicated while the next is appended."""

TIMEOUT_MARGIN_S = 5.0
"""Added to request.timeout.ms, which is how long the other broker waits for its replicas before it answers."""

MARKERS_MAX = 5_000
"""Markers in one request, counted by partition."""

TRANSACTIONS_MAX = 1_000
"""Transactions in one request to a coordinator."""


class Requests(Protocol):
    """A way to send requests to other brokers."""

    async def request(self, broker_id: int, message: Message, *, timeout_s: float) -> Any:
        """Send a request to a broker and return its answer; PeerUnavailable if there is none."""


class Peers(Requests, Protocol):
    """What is used of `replication.peers.Peers`: also connections that nothing else uses."""

    async def open(self, broker_id: int, timeout_s: float = 10.0) -> PeerConnection:
        """Open a connection of the caller's own; PeerUnavailable if that fails."""


class OwnConnections:
    """Requests over connections to the other brokers that carry nothing else.

    Markers need them: an answer to WriteTxnMarkers may have to wait for a slow replica, and answers on one connection
    come in order, so that everything else between two brokers would wait too.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._connections: dict[int, PeerConnection] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def request(self, broker_id: int, message: Message, *, timeout_s: float) -> Any:
        async with self._opening.setdefault(broker_id, asyncio.Lock()):
            connection = self._connections.get(broker_id)
            if connection is None or not connection.is_ready:
                connection = self._connections[broker_id] = await self._peers.open(broker_id)
        return await connection.request(message, timeout_s=timeout_s)

    def follow(self, image: Image) -> None:
        """Close connections to brokers that are gone, so that their requests fail now and not when they time out."""
        for broker_id in sorted(self._connections):
            broker = image.broker(broker_id)
            if broker is None or broker.fenced:
                self._connections.pop(broker_id).close(f"broker {broker_id} is not alive")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close("this broker is stopping")
        self._connections.clear()


class BrokerQueues(Generic[W]):
    """For each broker, what waits to be sent to it and how many requests are in flight."""

    def __init__(
        self,
        choose: Callable[[list[W]], tuple[list[W], list[W]]],
        send: Callable[[int, list[W]], Awaitable[None]],
        fail: Callable[[W, KafkaError], None],
    ) -> None:
        """`choose` divides what waits into the next request and the rest. `fail` gives an error to whoever waits for a
        piece of work, unless it has an answer already."""
        self._choose = choose
        self._send = send
        self._fail = fail
        self._waiting: dict[int, list[W]] = {}
        self._in_flight: dict[int, dict[asyncio.Task[None], list[W]]] = {}

    def add(self, broker_id: int, work: Iterable[W]) -> None:
        """Send this with the next request. All that is added in one iteration of the event loop goes together."""
        waiting = self._waiting.setdefault(broker_id, [])
        if not waiting:
            asyncio.get_running_loop().call_soon(self._send_next, broker_id)
        waiting.extend(work)

    def unanswered(self) -> list[tuple[int, W]]:
        """All that waits to be sent or for an answer, with its broker."""
        sent = [
            (broker_id, each)
            for broker_id, requests in self._in_flight.items()
            for work in requests.values()
            for each in work
        ]
        return sent + [(broker_id, each) for broker_id, waiting in self._waiting.items() for each in waiting]

    def stop(self) -> None:
        """Forget all that waits, and end the requests in flight."""
        self._waiting.clear()
        for requests in self._in_flight.values():
            for task in requests:
                task.cancel()

    def _send_next(self, broker_id: int) -> None:
        requests = self._in_flight.setdefault(broker_id, {})
        if len(requests) >= IN_FLIGHT_MAX:
            return  # the end of one of them calls this again
        waiting = self._waiting.pop(broker_id, [])
        if not waiting:
            return
        work, rest = self._choose(waiting)
        if rest:
            self._waiting[broker_id] = rest
        if not work:
            return
        task = asyncio.get_running_loop().create_task(self._run(broker_id, work), name=f"request to broker {broker_id}")
        requests[task] = work
        task.add_done_callback(partial(self._on_done, broker_id))
        if rest:
            self._send_next(broker_id)

    async def _run(self, broker_id: int, work: list[W]) -> None:
        try:
            await self._send(broker_id, work)
        except PeerUnavailable as error:
            self._fail_all(work, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))
        except KafkaError as error:
            self._fail_all(work, error)
        else:
            missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} left it out of its answer")
            self._fail_all(work, missing)

    def _fail_all(self, work: list[W], error: KafkaError) -> None:
        for each in work:
            self._fail(each, error)

    def _on_done(self, broker_id: int, task: asyncio.Task[None]) -> None:
        work = self._in_flight[broker_id].pop(task)
        if task.cancelled():
            self._fail_all(work, KafkaError(ErrorCode.NETWORK_EXCEPTION, "the broker is stopping"))
            return
        if (error := task.exception()) is not None:
            self._fail_all(work, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
        self._send_next(broker_id)


class Leadership(NamedTuple):
    """Of a broker, as far as this one knows."""

    topic_id: bytes
    leader_epoch: int


class WaitingMarker(NamedTuple):
    """A marker for one partition that its leader has not confirmed yet."""

    marker: TransactionMarker
    partition: TopicPartition
    leadership: Leadership
    written: asyncio.Future[None]


class ClusterMarkers:
    """Writes markers into partitions of any broker."""

    def __init__(
        self,
        broker_id: int,
        local: LocalMarkers,
        peers: Peers,
        config: Callable[[], BrokerConfig],
        image: Callable[[], Image],
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._connections = OwnConnections(peers)
        self._config = config
        self._image = image
        self._numbers = count()
        self._queues = BrokerQueues(_choose_markers, self._send, _fail_marker)

    def write_markers(
        self, broker_id: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, MarkerResult]:
        if broker_id == self._broker_id:
            return self._local.write_markers(broker_id, marker, partitions)
        if broker_id < 0:
            return dict.fromkeys(partitions, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE))
        loop, image = asyncio.get_running_loop(), self._image()
        waiting = [
            WaitingMarker(marker, partition, _find_leadership(image, partition), loop.create_future())
            for partition in partitions
        ]
        for each in waiting:
            each.written.add_done_callback(retrieve_exception)
        self._queues.add(broker_id, waiting)
        return {each.partition: each.written for each in waiting}

    def follow(self, image: Image) -> None:
        """Stop waiting for brokers that do not lead any more: a broker that hangs would hold a transaction up until the
        time-out, although another one leads by now."""
        self._connections.follow(image)
        for broker_id, waiting in self._queues.unanswered():
            state = image.partition(*waiting.partition)
            if state is None or state.leader != broker_id:
                _fail_marker(waiting, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} leads no more"))

    def stop(self) -> None:
        self._queues.stop()
        self._connections.close()

    async def _send(self, broker_id: int, work: list[WaitingMarker]) -> None:
        by_marker: dict[TransactionMarker, dict[TopicPartition, list[asyncio.Future[None]]]] = {}
        leaderships: dict[TopicPartition, Leadership] = {}
        for marker, partition, leadership, written in work:
            by_marker.setdefault(marker, {}).setdefault(partition, []).append(written)
            leaderships[partition] = leadership  # the newest; all that wait for this broker are meant for it
        this_broker = self._image().broker(self._broker_id)
        request = WriteTxnMarkersRequest(
            markers=[_to_message(marker, partitions, leaderships) for marker, partitions in by_marker.items()],
            sender=self._broker_id,
            sender_epoch=-1 if this_broker is None else this_broker.epoch,
            number=next(self._numbers),
        )
        response: WriteTxnMarkersResponse = await self._connections.request(
            broker_id, request, timeout_s=timeout_s(self._config())
        )
        for partitions, result in zip(by_marker.values(), response.markers, strict=False):
            for topic in result.topics:
                for each in topic.partitions:
                    for written in partitions.get(TopicPartition(topic.name, each.partition_index), ()):
                        _settle(written, each.error_code)


def _choose_markers(waiting: list[WaitingMarker]) -> tuple[list[WaitingMarker], list[WaitingMarker]]:
    wanted = [each for each in waiting if not each.written.done()]  # its coordinator may have stopped waiting
    return wanted[:MARKERS_MAX], wanted[MARKERS_MAX:]


def _fail_marker(waiting: WaitingMarker, error: KafkaError) -> None:
    if not waiting.written.done():
        waiting.written.set_exception(error)


def _settle(written: asyncio.Future[None], code: int) -> None:
    if written.done():
        return
    if code:
        written.set_exception(KafkaError(to_error_code(code)))
    else:
        written.set_result(None)


def _find_leadership(image: Image, partition: TopicPartition) -> Leadership:
    topic, state = image.topic(partition.topic), image.partition(*partition)
    return Leadership(ZERO_UUID, -1) if topic is None or state is None else Leadership(topic.id, state.leader_epoch)


def _to_message(
    marker: TransactionMarker, partitions: Iterable[TopicPartition], leaderships: Mapping[TopicPartition, Leadership]
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.committed,
        topics=[
            WritableTxnMarkerTopic(
                name=topic,
                partition_indexes=indexes,
                leader_epochs=[leaderships[TopicPartition(topic, index)].leader_epoch for index in indexes],
                topic_id=leaderships[TopicPartition(topic, indexes[0])].topic_id,
            )
            for topic, indexes in group_by_topic(partitions).items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.version,
    )


@dataclass(slots=True, eq=False)
class WaitingTransaction:
    """A question to the coordinator of a transaction that is not answered yet."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Sequence[TopicPartition]
    verify_only: bool
    codes: asyncio.Future[Mapping[TopicPartition, ErrorCode]]


class ClusterCoordinators:
    """Asks the transaction coordinator of any broker."""

    def __init__(
        self, broker_id: int, local: LocalCoordinator, peers: Requests, config: Callable[[], BrokerConfig]
    ) -> None:
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._config = config
        self._queues = BrokerQueues(_choose_transactions, self._send, _fail_transaction)

    async def add_partitions(
        self, broker_id: int, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> None:
        if broker_id == self._broker_id:
            await self._local.add_partitions(broker_id, transactional_id, producer, partitions)
            return
        codes = await self._ask(broker_id, transactional_id, producer, partitions, verify_only=False)
        for partition in partitions:
            if codes[partition] is not ErrorCode.NONE:
                raise KafkaError(codes[partition])

    async def find_missing_partitions(
        self, broker_id: int, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> frozenset[TopicPartition]:
        if broker_id == self._broker_id:
            return await self._local.find_missing_partitions(broker_id, transactional_id, producer, partitions)
        codes = await self._ask(broker_id, transactional_id, producer, partitions, verify_only=True)
        for partition in partitions:
            if codes[partition] not in (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE):
                raise KafkaError(codes[partition])
        return frozenset(each for each in partitions if codes[each] is ErrorCode.TRANSACTION_ABORTABLE)

    def follow(self, image: Image) -> None:
        """Stop waiting for brokers that are gone: the partitions of `__transaction_state` have other leaders then."""
        for broker_id, waiting in self._queues.unanswered():
            broker = image.broker(broker_id)
            if broker is None or broker.fenced:
                _fail_transaction(waiting, KafkaError(ErrorCode.NOT_COORDINATOR, f"broker {broker_id} is gone"))

    def stop(self) -> None:
        self._queues.stop()

    async def _ask(
        self,
        broker_id: int,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The error code of each partition, every one of which the answer must have."""
        codes: asyncio.Future[Mapping[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        self._queues.add(broker_id, [WaitingTransaction(transactional_id, producer, partitions, verify_only, codes)])
        answer = await codes
        if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in answer.values() or any(each not in answer for each in partitions):
            # This broker leads these partitions, so they exist: the coordinator's metadata is not up to date.
            message = f"broker {broker_id} does not know the partitions of the transaction yet"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return answer

    async def _send(self, broker_id: int, work: list[WaitingTransaction]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_to_transaction(each) for each in work])
        response: AddPartitionsToTxnResponse = await self._peers.request(
            broker_id, request, timeout_s=timeout_s(self._config())
        )
        if response.error_code:
            raise KafkaError(to_error_code(response.error_code))
        results = {result.transactional_id: result for result in response.results_by_transaction}
        for each in work:
            result = results.get(each.transactional_id)
            if result is not None and not each.codes.done():
                each.codes.set_result(
                    {
                        TopicPartition(topic.name, partition.partition_index): to_error_code(
                            partition.partition_error_code
                        )
                        for topic in result.topic_results
                        for partition in topic.results_by_partition
                    }
                )


def _choose_transactions(
    waiting: list[WaitingTransaction],
) -> tuple[list[WaitingTransaction], list[WaitingTransaction]]:
    """A request names a transactional id once, because its answers are matched by that id. A second question about the
    same id waits for the next request."""
    chosen: dict[str, WaitingTransaction] = {}
    rest = []
    for each in waiting:
        if each.codes.done():
            continue
        if each.transactional_id in chosen or len(chosen) >= TRANSACTIONS_MAX:
            rest.append(each)
        else:
            chosen[each.transactional_id] = each
    return list(chosen.values()), rest


def _fail_transaction(waiting: WaitingTransaction, error: KafkaError) -> None:
    if not waiting.codes.done():
        waiting.codes.set_exception(error)


def _to_transaction(waiting: WaitingTransaction) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=waiting.transactional_id,
        producer_id=waiting.producer.id,
        producer_epoch=waiting.producer.epoch,
        verify_only=waiting.verify_only,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in group_by_topic(waiting.partitions).items()
        ],
    )


def timeout_s(config: BrokerConfig) -> float:
    return config.request_timeout_ms / 1000 + TIMEOUT_MARGIN_S


def to_error_code(code: int) -> ErrorCode:
    """A code of an answer; UNKNOWN_SERVER_ERROR for one that this release does not know."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
