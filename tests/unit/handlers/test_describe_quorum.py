"""DescribeQuorum: what a cluster without a quorum of controllers answers."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.call import Call, Client
from ottla.broker.node import Node
from ottla.cluster.changes import Endpoint
from ottla.cluster.entities import BrokerImage, ControllerImage
from ottla.cluster.image import EMPTY, Image
from ottla.errors import ErrorCode
from ottla.handlers import describe_quorum
from ottla.wire.messages import describe_quorum as messages

CLIENT = Client(1, "PLAINTEXT", ("client", 1), ("here", 9092))


def cluster(controller: int | None) -> Image:
    """Three brokers, of which the third is fenced."""
    brokers = EMPTY.brokers
    for number in (1, 2, 3):
        address = (Endpoint("PLAINTEXT", f"host-{number}", 9092, "PLAINTEXT"),)
        brokers = brokers.set(number, BrokerImage(number, 7, address, None, fenced=number == 3, clean=True))
    chosen = None if controller is None else ControllerImage(controller, 7, 9)
    return replace(EMPTY, version=40, brokers=brokers, controller=chosen)


def ask(
    image: Image, topics: list[tuple[str, list[int]]], is_connected: bool = True
) -> messages.DescribeQuorumResponse:
    clock = SimpleNamespace(now_ms=lambda: 1234)
    node = SimpleNamespace(image=image, clock=clock, is_connected=lambda: is_connected)
    asked = [
        messages.DescribeQuorumRequestTopicData(
            topic_name=name,
            partitions=[messages.DescribeQuorumRequestPartitionData(partition_index=index) for index in indexes],
        )
        for name, indexes in topics
    ]
    call = Call(55, 2, 1, None, messages.DescribeQuorumRequest(topics=asked), CLIENT)
    return describe_quorum.handle(cast(Node, node), call)


def test_the_controller_leads_and_the_others_observe() -> None:
    """Only brokers that are there are named. Nobody knows how far an observer has come."""
    answer = ask(cluster(controller=2), [("__cluster_metadata", [0])])
    (((partition,),),) = ([topic.partitions for topic in answer.topics],)
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 2, 9)
    assert partition.high_watermark == 41
    (leader,) = partition.current_voters
    assert (leader.replica_id, leader.log_end_offset) == (2, 41)
    assert (leader.last_fetch_timestamp, leader.last_caught_up_timestamp) == (1234, 1234), "as in Kafka, now"
    assert (answer.error_message, partition.error_message) == ("", ""), "as in Kafka, not null"
    assert [(each.replica_id, each.log_end_offset) for each in partition.observers] == [(1, -1)]
    assert [(each.node_id, [where.host for where in each.listeners]) for each in answer.nodes] == [(2, ["host-2"])]


def test_without_a_controller_clients_ask_again() -> None:
    """LEADER_NOT_AVAILABLE is retried by clients."""
    for image in (cluster(controller=None), cluster(controller=8)):
        (topic,) = ask(image, [("__cluster_metadata", [0])]).topics
        assert [each.error_code for each in topic.partitions] == [ErrorCode.LEADER_NOT_AVAILABLE]
        assert all(each.error_message for each in topic.partitions)


def test_a_broker_without_zookeeper_does_not_know_who_leads() -> None:
    (topic,) = ask(cluster(controller=2), [("__cluster_metadata", [0])], is_connected=False).topics
    (partition,) = topic.partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.error_message == "no connection to ZooKeeper, so the metadata cannot change"


@pytest.mark.parametrize(
    "topics",
    [[("orders", [0])], [("__cluster_metadata", [1])], [("__cluster_metadata", [0, 1])], [("__cluster_metadata", [])]],
)
def test_only_the_metadata_has_a_quorum(topics: list[tuple[str, list[int]]]) -> None:
    """As in Kafka, every partition of a request for something else is refused."""
    (topic,) = ask(cluster(controller=2), topics).topics
    expected = [(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in topics[0][1]]
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == expected
