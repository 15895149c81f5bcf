"""WriteTxnMarkers: all markers are appended before anything is waited for, and each partition has its own result."""

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.broker.broker import Broker
from ottla.cluster.image import EMPTY
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import write_txn_markers
from ottla.replication.transactions import TransactionMarker
from ottla.topic_partition import TopicPartition
from ottla.wire.extended.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersResponse
from tests.simulation.loop import simulate
from tests.unit.handlers.one_broker import call
from tests.unit.handlers.three_brokers import OTHERS, TOPIC, TOPIC_ID, move_leader, shared, start


class Markers:
    """Partition 0 is replicated at once, the others when the test says so. Topic `gone` is refused."""

    def __init__(self) -> None:
        self.appended: list[tuple[TopicPartition, TransactionMarker]] = []
        self.replicated: dict[TopicPartition, asyncio.Future[None]] = {}

    def append(
        self, partition: TopicPartition, marker: TransactionMarker, leader_epoch: int
    ) -> asyncio.Future[None] | None:
        assert leader_epoch == -1, "an administrator knows of none"
        if partition.topic == "gone":
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.appended.append((partition, marker))
        if partition.partition == 0:
            return None
        return self.replicated.setdefault(partition, asyncio.get_running_loop().create_future())


def make_node(timeout_ms: int = 30_000) -> Any:
    return SimpleNamespace(markers=Markers(), image=EMPTY, config=SimpleNamespace(request_timeout_ms=timeout_ms))


def ask(node: Any, *topics: tuple[str, list[int]]) -> Any:
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=1,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics],
        coordinator_epoch=5,
        transaction_version=2,
    )
    return write_txn_markers.handle(node, call(WriteTxnMarkersRequest(markers=[marker])))


def codes(response: WriteTxnMarkersResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.error_code
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }


def test_what_is_replicated_at_once_is_answered_at_once() -> None:
    node = make_node()
    response = ask(node, ("t", [0]), ("gone", [0]))
    assert codes(response) == {("t", 0): ErrorCode.NONE, ("gone", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert node.markers.appended == [(TopicPartition("t", 0), TransactionMarker(7, 1, True, 5, 2))]


def test_partitions_are_appended_together_and_waited_for_beside_each_other() -> None:
    async def main() -> None:
        node = make_node()
        answer = ask(node, ("t", [1, 2, 3, 0]))
        assert [partition.partition for partition, _ in node.markers.appended] == [1, 2, 3, 0]
        replicated = node.markers.replicated
        replicated[TopicPartition("t", 3)].set_result(None)
        replicated[TopicPartition("t", 2)].set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await asyncio.sleep(0)
        assert not answer.done()
        replicated[TopicPartition("t", 1)].set_result(None)
        assert codes(await answer) == {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.NONE,
            ("t", 2): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ("t", 3): ErrorCode.NONE,
        }

    asyncio.run(main())


def test_a_marker_that_is_not_replicated_in_time_is_told_apart() -> None:
    async def main() -> None:
        node = make_node(timeout_ms=20)
        answer = ask(node, ("t", [1, 2]))
        node.markers.replicated[TopicPartition("t", 2)].set_result(None)
        assert codes(await answer) == {("t", 1): ErrorCode.REQUEST_TIMED_OUT, ("t", 2): ErrorCode.NONE}
        node.markers.replicated[TopicPartition("t", 1)].set_result(None)  # too late: nothing happens
        await asyncio.sleep(0)

    asyncio.run(main())


SENDER_EPOCH = 50


def ask_as_coordinator(
    broker: Broker,
    number: int,
    leader_epoch: int,
    *,
    sender: int = OTHERS[0],
    sender_epoch: int = SENDER_EPOCH,
    topic_id: bytes = TOPIC_ID,
) -> int:
    """The error code for a marker in the partition of the broker. It has other replicas, which do not run."""
    topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0], leader_epochs=[leader_epoch], topic_id=topic_id)
    marker = WritableTxnMarker(producer_id=7, producer_epoch=1, topics=[topic], coordinator_epoch=5)
    request = WriteTxnMarkersRequest(markers=[marker], sender=sender, sender_epoch=sender_epoch, number=number)
    try:
        response = write_txn_markers.handle(broker.node, call(request))
    except KafkaError as error:
        return error.code
    if isinstance(response, asyncio.Future):  # it is appended, and waits for the other replicas
        response.cancel()
        return ErrorCode.NONE
    return codes(response)[TOPIC, 0]


def test_a_marker_for_an_earlier_leadership_is_refused() -> None:
    # The leadership has moved away and back. The coordinator has written the marker at the leader between.
    async def scenario() -> None:
        broker = await start()
        await move_leader(broker, OTHERS[1])
        assert ask_as_coordinator(broker, 1, leader_epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
        await move_leader(broker, broker.node.broker_id)
        end = shared(broker).log.end_offset
        assert ask_as_coordinator(broker, 2, leader_epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
        assert ask_as_coordinator(broker, 3, leader_epoch=3) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert shared(broker).log.end_offset == end
        assert ask_as_coordinator(broker, 4, leader_epoch=2) == ErrorCode.NONE
        assert shared(broker).log.end_offset == end + 1
        broker.abort()

    simulate(scenario())


def test_a_request_that_comes_after_a_later_one_is_refused() -> None:
    # It was on a connection that is lost, and the coordinator has written its markers over the next connection.
    async def scenario() -> None:
        broker = await start()
        assert ask_as_coordinator(broker, 5, leader_epoch=0) == ErrorCode.NONE
        assert ask_as_coordinator(broker, 4, leader_epoch=0) == ErrorCode.REQUEST_TIMED_OUT
        assert ask_as_coordinator(broker, 5, leader_epoch=0) == ErrorCode.REQUEST_TIMED_OUT
        assert ask_as_coordinator(broker, 1, leader_epoch=0, sender=OTHERS[1]) == ErrorCode.NONE
        assert ask_as_coordinator(broker, 0, leader_epoch=0, sender_epoch=SENDER_EPOCH + 1) == ErrorCode.NONE
        assert ask_as_coordinator(broker, 6, leader_epoch=0) == ErrorCode.REQUEST_TIMED_OUT, "before it registered anew"
        assert shared(broker).log.end_offset == 3
        broker.abort()

    simulate(scenario())


def test_a_marker_for_a_topic_that_was_deleted_is_refused() -> None:
    # The name belongs to a new topic, whose leader epochs began at 0 again.
    async def scenario() -> None:
        broker = await start()
        assert ask_as_coordinator(broker, 1, leader_epoch=0, topic_id=b"d" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
        assert shared(broker).log.end_offset == 0
        broker.abort()

    simulate(scenario())
