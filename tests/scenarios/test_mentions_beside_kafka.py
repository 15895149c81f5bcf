"""Requests that mention topics and partitions twice, wrongly or without need, to Apache Kafka and to this broker."""

from collections.abc import Callable

import pytest

from ottla.wire.message import Message
from ottla.wire.messages import alter_partition_reassignments as moving
from ottla.wire.messages import describe_quorum as quorum
from ottla.wire.messages import elect_leaders as electing
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kafka_peer import Clients
from tests.patience import PATIENCE_MS
from tests.raw_client import RawClient
from tests.scenarios.answer_comparison import strip_own_fields

UNKNOWN_ID = b"0123456789abcdef"

Ids = dict[str, bytes]
"""The ids of the topics a and b, which each broker has chosen itself."""


@pytest.fixture(scope="module")
def ids(both_clients: Clients) -> tuple[Ids, Ids]:
    """Both brokers have the topics a and b, with leaders."""
    first, second = (create(client, "a", "b") for client in both_clients)
    return first, second


def create(client: RawClient, *names: str) -> Ids:
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    answer = client.request(CreateTopicsRequest(topics=topics, timeout_ms=PATIENCE_MS), 7)
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
    for name in names:
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=partitions)])
        while any(each.error_code for each in client.request(asked, 5).topics[0].partitions):
            pass
    return {topic.name: topic.topic_id for topic in answer.topics}


def by_name(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def ask(*topics: MetadataRequestTopic) -> Message:
    return MetadataRequest(topics=list(topics), allow_auto_topic_creation=False)


def by_id(topic_id: bytes) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=None, topic_id=topic_id)


def delete(*topics: DeleteTopicState) -> Message:
    return DeleteTopicsRequest(topics=list(topics), timeout_ms=PATIENCE_MS)


def elect(*topics: tuple[str, list[int]]) -> Message:
    asked = [electing.TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics]
    return electing.ElectLeadersRequest(topic_partitions=asked, timeout_ms=PATIENCE_MS)


def move(*topics: tuple[str, list[tuple[int, list[int] | None]]]) -> Message:
    asked = [
        moving.ReassignableTopic(
            name=name,
            partitions=[
                moving.ReassignablePartition(partition_index=number, replicas=replicas) for number, replicas in rows
            ],
        )
        for name, rows in topics
    ]
    return moving.AlterPartitionReassignmentsRequest(topics=asked, timeout_ms=PATIENCE_MS)


REQUESTS: dict[str, Callable[[Ids], Message]] = {
    "names twice": lambda ids: ask(*by_name("a", "nope", "a", "nope", "b")),
    "ids twice": lambda ids: ask(by_id(ids["a"]), by_id(UNKNOWN_ID), by_id(ids["a"]), by_id(UNKNOWN_ID)),
    "names beside ids": lambda ids: ask(*by_name("b", "nope"), by_id(ids["a"])),
    "names beside an unknown id": lambda ids: ask(*by_name("b"), by_id(UNKNOWN_ID)),
    "elections": lambda ids: elect(("a", []), ("nope", []), ("b", [1, 0, 1, 7]), ("nope", [0])),
    "moves": lambda ids: move(
        ("a", []),
        ("nope", []),
        ("b", [(1, [1]), (0, None), (1, [9]), (0, [1]), (1, [1, 1]), (1, [])]),
        ("nope", [(0, [1])]),
    ),
    "no quorum": lambda ids: quorum.DescribeQuorumRequest(
        topics=[
            quorum.DescribeQuorumRequestTopicData(
                topic_name="a", partitions=[quorum.DescribeQuorumRequestPartitionData()]
            )
        ]
    ),
    "deleted without name and id": lambda ids: delete(DeleteTopicState(name=None)),
    "deleted by name twice": lambda ids: delete(DeleteTopicState(name="a"), DeleteTopicState(name="a")),
    "deleted by name and id": lambda ids: delete(
        DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=ids["a"])
    ),
    "deleted by id and name": lambda ids: delete(
        DeleteTopicState(name=None, topic_id=ids["a"]), DeleteTopicState(name="a"), DeleteTopicState(name="nope")
    ),
    "deleted by id twice and name": lambda ids: delete(
        *[DeleteTopicState(name=None, topic_id=ids["a"])] * 2, DeleteTopicState(name="a")
    ),
    "deleted by both in one": lambda ids: delete(DeleteTopicState(name="a", topic_id=ids["a"])),
    "a is still there": lambda ids: ask(*by_name("a", "b")),
    "deleted by name twice and id": lambda ids: delete(
        *[DeleteTopicState(name="b")] * 2, DeleteTopicState(name=None, topic_id=ids["b"])
    ),
}
"""In this order: the last one deletes a topic."""


def test_both_brokers_answer_each_mention(both_clients: Clients, ids: tuple[Ids, Ids]) -> None:
    """The newest version of each API. Messages are each broker's own."""
    different = {}
    for what, build in REQUESTS.items():
        requests = [build(each) for each in ids]
        version = type(requests[0]).VERSIONS[-1]
        theirs, ours = (client.request(each, version) for client, each in zip(both_clients, requests, strict=True))
        if strip_own_fields(theirs) != strip_own_fields(ours):
            different[what] = f"Kafka: {theirs}\n  Ottla: {ours}"
    assert not different


def test_both_brokers_describe_a_leader_of_the_metadata(both_clients: Clients) -> None:
    """The leader has fetched and caught up at the same moment, and there are empty messages."""
    partitions = [quorum.DescribeQuorumRequestPartitionData()]
    topics = [quorum.DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=partitions)]
    for client in both_clients:
        answer = client.request(quorum.DescribeQuorumRequest(topics=topics), 2)
        ((partition,),) = (topic.partitions for topic in answer.topics)
        assert (answer.error_code, answer.error_message) == (0, "")
        assert (partition.error_code, partition.error_message) == (0, "")
        (leader,) = partition.current_voters
        assert leader.replica_id == partition.leader_id
        assert leader.last_fetch_timestamp == leader.last_caught_up_timestamp > 0
