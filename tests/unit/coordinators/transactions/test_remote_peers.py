"""Requests to other brokers about transactions: batched, few in flight, and told apart when they are answered."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.config import BrokerConfig
from ottla.coordinators.machine import ProducerIdentity
from ottla.coordinators.transactions.remote_peers import IN_FLIGHT_MAX, MARKERS_MAX, ClusterCoordinators, ClusterMarkers
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.transactions import TransactionMarker
from ottla.topic_partition import TopicPartition
from ottla.wire.extended.write_txn_markers import WriteTxnMarkersRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.wire.peer import PeerUnavailable

CONFIG = BrokerConfig.of({})
ME, OTHER = 1, 2
EPOCH = 77
TOPIC_ID = b"t" * 16
A, B, C = (TopicPartition("t", index) for index in range(3))


class Connection:
    """A connection that carries nothing but markers."""

    def __init__(self, connections: "Connections", broker_id: int) -> None:
        self.is_ready = True
        self._connections = connections
        self._broker_id = broker_id

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        return await self._connections.request(self._broker_id, message, timeout_s=timeout_s)

    def close(self, reason: str) -> None:
        self.is_ready = False
        for broker_id, _, answer in self._connections.requests:
            if broker_id == self._broker_id and not answer.done():
                answer.set_exception(PeerUnavailable(reason))


class Connections:
    """Keeps every request until the test answers it."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Any, asyncio.Future[Any]]] = []
        self.opened: list[Connection] = []

    async def open(self, broker_id: int, timeout_s: float = 10.0) -> Any:
        self.opened.append(Connection(self, broker_id))
        return self.opened[-1]

    async def request(self, broker_id: int, message: Any, *, timeout_s: float) -> Any:
        assert timeout_s > CONFIG.request_timeout_ms / 1000
        answer = asyncio.get_running_loop().create_future()
        self.requests.append((broker_id, message, answer))
        return await answer


class Local:
    """This broker itself."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def write_markers(self, broker_id: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]) -> Any:
        self.asked.append((broker_id, marker, list(partitions)))
        return dict.fromkeys(partitions)

    async def add_partitions(self, *asked: Any) -> None:
        self.asked.append(asked)

    async def find_missing_partitions(self, *asked: Any) -> frozenset[TopicPartition]:
        self.asked.append(asked)
        return frozenset()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def marker_of(producer_id: int) -> TransactionMarker:
    return TransactionMarker(producer_id, 3, True, coordinator_epoch=9, version=2)


def answer_markers(request: WriteTxnMarkersRequest, code: int = 0) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def markers_in(request: WriteTxnMarkersRequest) -> list[tuple[int, list[int]]]:
    return [
        (each.producer_id, [index for topic in each.topics for index in topic.partition_indexes])
        for each in request.markers
    ]


def play_markers(script: Callable[[ClusterMarkers, Connections, Local], Awaitable[None]]) -> None:
    async def main() -> None:
        local: Any = Local()
        connections = Connections()
        markers = ClusterMarkers(ME, local, connections, lambda: CONFIG, lambda: image_led_by(OTHER))
        await script(markers, connections, local)

    asyncio.run(main())


def test_this_broker_is_called_directly() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        assert markers.write_markers(ME, marker_of(7), [A]) == {A: None}
        assert local.asked == [(ME, marker_of(7), [A])]
        await settle()
        assert not connections.requests

    play_markers(script)


def test_markers_for_one_broker_share_a_request() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        first = markers.write_markers(OTHER, marker_of(7), [A, B])
        second = markers.write_markers(OTHER, marker_of(8), [B])
        third: Any = markers.write_markers(3, marker_of(8), [C])
        await settle()
        assert [broker_id for broker_id, _, _ in connections.requests] == [OTHER, 3]
        _, request, answer = connections.requests[0]
        assert markers_in(request) == [(7, [0, 1]), (8, [1])]
        sent = request.markers[0]
        assert (sent.producer_epoch, sent.transaction_result, sent.coordinator_epoch, sent.transaction_version) == (
            3,
            True,
            9,
            2,
        )
        answer.set_result(answer_markers(request))
        for future in (*first.values(), *second.values()):
            assert isinstance(future, asyncio.Future)
            await future
        assert not third[C].done()

    play_markers(script)


def test_what_comes_while_requests_are_in_flight_goes_together_in_the_next() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        for producer_id in range(10):
            markers.write_markers(OTHER, marker_of(producer_id), [A])
            await settle()
        assert len(connections.requests) == IN_FLIGHT_MAX
        _, request, answer = connections.requests[0]
        answer.set_result(answer_markers(request))
        await settle()
        assert len(connections.requests) == IN_FLIGHT_MAX + 1
        assert [producer_id for producer_id, _ in markers_in(connections.requests[-1][1])] == [
            *range(IN_FLIGHT_MAX, 10)
        ]

    play_markers(script)


def test_a_request_has_a_limit() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        many = [TopicPartition("t", index) for index in range(MARKERS_MAX + 3)]
        markers.write_markers(OTHER, marker_of(7), many)
        await settle()
        assert [len(markers_in(request)[0][1]) for _, request, _ in connections.requests] == [MARKERS_MAX, 3]

    play_markers(script)


def test_every_partition_hears_what_became_of_its_own_marker() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        results: Any = markers.write_markers(OTHER, marker_of(7), [A, B, C])
        await settle()
        _, request, answer = connections.requests[0]
        response = answer_markers(request)
        partitions = response.markers[0].topics[0].partitions
        partitions[1].error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        del partitions[2]
        answer.set_result(response)
        await results[A]
        for partition, code in (
            (B, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
            (C, ErrorCode.UNKNOWN_SERVER_ERROR),  # the answer has nothing about it: to be written again
        ):
            with pytest.raises(KafkaError) as refused:
                await results[partition]
            assert refused.value.code is code

    play_markers(script)


def test_a_broker_that_does_not_answer_is_an_error_and_others_go_on() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        results: Any = markers.write_markers(OTHER, marker_of(7), [A])
        await settle()
        connections.requests[0][2].set_exception(PeerUnavailable("connection refused"))
        with pytest.raises(KafkaError) as refused:
            await results[A]
        assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
        markers.write_markers(OTHER, marker_of(7), [A])
        await settle()
        assert len(connections.requests) == 2

    play_markers(script)


def test_nobody_leads() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        result = markers.write_markers(-1, marker_of(7), [A])[A]
        assert isinstance(result, KafkaError) and result.code is ErrorCode.LEADER_NOT_AVAILABLE

    play_markers(script)


def test_a_coordinator_that_gave_up_has_nothing_sent() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        for result in markers.write_markers(OTHER, marker_of(7), [A, B]).values():
            assert isinstance(result, asyncio.Future)
            result.cancel()
        markers.write_markers(OTHER, marker_of(8), [A])
        await settle()
        assert markers_in(connections.requests[0][1]) == [(8, [0])]

    play_markers(script)


def image_led_by(leader: int, *, fenced: bool = False) -> Any:
    """What is read of an image: all partitions have this leader, in leader epochs that tell them apart, and no broker
    or every broker is fenced."""
    return SimpleNamespace(
        topic=lambda name: SimpleNamespace(id=TOPIC_ID),
        partition=lambda topic, index: SimpleNamespace(leader=leader, leader_epoch=10 + index),
        broker=lambda broker_id: SimpleNamespace(id=broker_id, fenced=fenced, epoch=EPOCH),
    )


def test_requests_say_for_which_leadership_they_are_and_in_which_order_they_were_sent() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        markers.write_markers(OTHER, marker_of(7), [C, A])
        await settle()
        markers.write_markers(OTHER, marker_of(8), [B])
        await settle()
        first, second = (request for _, request, _ in connections.requests)
        (topic,) = first.markers[0].topics
        assert dict(zip(topic.partition_indexes, topic.leader_epochs, strict=True)) == {0: 10, 2: 12}
        assert topic.topic_id == TOPIC_ID
        assert (first.sender, first.sender_epoch) == (second.sender, second.sender_epoch) == (ME, EPOCH)
        assert 0 <= first.number < second.number

    play_markers(script)


def test_a_broker_that_leads_no_more_is_not_waited_for() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        results: Any = markers.write_markers(OTHER, marker_of(7), [A])
        await settle()
        markers.follow(image_led_by(OTHER))
        assert not results[A].done()
        markers.follow(image_led_by(ME))
        assert results[A].exception().code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        _, request, answer = connections.requests[0]
        answer.set_result(answer_markers(request))  # too late
        await settle()

    play_markers(script)


def test_a_connection_to_a_broker_that_is_gone_is_closed_and_opened_anew() -> None:
    """Otherwise requests to a process that hangs would keep those to the next one waiting."""

    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        for producer_id in range(IN_FLIGHT_MAX):
            markers.write_markers(OTHER, marker_of(producer_id), [A])
            await settle()
        assert len(connections.opened) == 1
        markers.follow(image_led_by(ME, fenced=True))
        markers.write_markers(OTHER, marker_of(7), [A])
        await settle()
        assert len(connections.opened) == 2
        assert [producer_id for producer_id, _ in markers_in(connections.requests[-1][1])] == [7]

    play_markers(script)


def test_the_end_of_the_broker_fails_what_waits() -> None:
    async def script(markers: ClusterMarkers, connections: Connections, local: Local) -> None:
        results: Any = markers.write_markers(OTHER, marker_of(7), [A])
        await settle()
        markers.stop()
        await settle()
        assert results[A].done() and connections.requests[0][2].cancelled()

    play_markers(script)


# The coordinator of a transaction


def play_coordinators(script: Callable[[ClusterCoordinators, Connections, Local], Awaitable[None]]) -> None:
    async def main() -> None:
        local: Any = Local()
        connections = Connections()
        await script(ClusterCoordinators(ME, local, connections, lambda: CONFIG), connections, local)

    asyncio.run(main())


def answer_transactions(
    request: AddPartitionsToTxnRequest, codes: dict[TopicPartition, ErrorCode] | None = None
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index,
                                partition_error_code=(codes or {}).get(TopicPartition(topic.name, index), 0),
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


def test_questions_to_one_coordinator_share_a_request() -> None:
    async def script(coordinators: ClusterCoordinators, connections: Connections, local: Local) -> None:
        loop = asyncio.get_running_loop()
        added = loop.create_task(coordinators.add_partitions(OTHER, "x", ProducerIdentity(7, 1), [A]))
        missing = loop.create_task(coordinators.find_missing_partitions(OTHER, "y", ProducerIdentity(8, 2), [A, B]))
        again = loop.create_task(coordinators.add_partitions(OTHER, "x", ProducerIdentity(7, 1), [B]))
        await settle()
        # A transactional id is in a request once, because answers are told apart by it.
        assert [[each.transactional_id for each in request.transactions] for _, request, _ in connections.requests] == [
            ["x", "y"],
            ["x"],
        ]
        first, second = (request.transactions for _, request, _ in connections.requests)
        assert [(each.producer_id, each.producer_epoch, each.verify_only) for each in first] == [
            (7, 1, False),
            (8, 2, True),
        ]
        assert [(topic.name, topic.partitions) for topic in second[0].topics] == [("t", [1])]
        connections.requests[0][2].set_result(
            answer_transactions(connections.requests[0][1], {B: ErrorCode.TRANSACTION_ABORTABLE})
        )
        connections.requests[1][2].set_result(answer_transactions(connections.requests[1][1]))
        await added
        await again
        assert await missing == {B}

    play_coordinators(script)


@pytest.mark.parametrize(
    ("sent", "raised"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        # This broker leads the partition, so it exists: the coordinator has old metadata.
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_the_error_of_a_partition_is_the_error_of_the_question(sent: ErrorCode, raised: ErrorCode) -> None:
    async def script(coordinators: ClusterCoordinators, connections: Connections, local: Local) -> None:
        for ask in (coordinators.add_partitions, coordinators.find_missing_partitions):
            question: Any = ask(OTHER, "x", ProducerIdentity(7, 1), [A, B])
            task = asyncio.get_running_loop().create_task(question)
            await settle()
            _, request, answer = connections.requests[-1]
            answer.set_result(answer_transactions(request, {A: sent, B: sent}))
            with pytest.raises(KafkaError) as refused:
                await task
            assert refused.value.code is raised

    play_coordinators(script)


def test_a_partition_that_the_answer_leaves_out_is_not_added() -> None:
    async def script(coordinators: ClusterCoordinators, connections: Connections, local: Local) -> None:
        task = asyncio.get_running_loop().create_task(
            coordinators.add_partitions(OTHER, "x", ProducerIdentity(7, 1), [A, B])
        )
        await settle()
        _, request, answer = connections.requests[0]
        response = answer_transactions(request)
        del response.results_by_transaction[0].topic_results[0].results_by_partition[1]
        answer.set_result(response)
        with pytest.raises(KafkaError) as refused:
            await task
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play_coordinators(script)


def test_a_coordinator_that_is_gone_is_not_waited_for() -> None:
    async def script(coordinators: ClusterCoordinators, connections: Connections, local: Local) -> None:
        task = asyncio.get_running_loop().create_task(
            coordinators.add_partitions(OTHER, "x", ProducerIdentity(7, 1), [A])
        )
        await settle()
        coordinators.follow(image_led_by(OTHER))
        await settle()
        assert not task.done()
        coordinators.follow(image_led_by(OTHER, fenced=True))
        with pytest.raises(KafkaError) as refused:
            await task
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    play_coordinators(script)


def test_the_coordinator_of_this_broker_is_asked_directly() -> None:
    async def script(coordinators: ClusterCoordinators, connections: Connections, local: Local) -> None:
        await coordinators.add_partitions(ME, "x", ProducerIdentity(7, 1), [A])
        assert await coordinators.find_missing_partitions(ME, "x", ProducerIdentity(7, 1), [A]) == frozenset()
        assert len(local.asked) == 2 and not connections.requests

    play_coordinators(script)
