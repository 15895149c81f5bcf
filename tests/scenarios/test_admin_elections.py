"""Elections, reassignments and brokers that leave, as a cluster of one broker answers them."""

from ottla.errors import ErrorCode
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.raw_client import RawClient


def elect(client: RawClient, kind: int, partitions: list[TopicPartitions] | None) -> dict[str, dict[int, int]]:
    answer = client.request(ElectLeadersRequest(election_type=kind, topic_partitions=partitions), 2)
    assert answer.error_code == 0
    return {
        topic.topic: {each.partition_id: each.error_code for each in topic.partition_result}
        for topic in answer.replica_election_results
    }


def reassign(client: RawClient, topic: str, number: int, replicas: list[int] | None) -> int:
    asked = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=number, replicas=replicas)])
    answer = client.request(AlterPartitionReassignmentsRequest(topics=[asked]), 1)
    assert answer.error_code == 0
    code: int = answer.responses[0].partitions[0].error_code
    return code


def test_a_leader_that_is_the_preferred_one_needs_no_election(client: RawClient, topic: str) -> None:
    named = [TopicPartitions(topic=topic, partitions=[0, 7]), TopicPartitions(topic="missing", partitions=[0])]
    for kind in (0, 1):
        found = elect(client, kind, named)
        assert found[topic] == {0: ErrorCode.ELECTION_NOT_NEEDED, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert found["missing"] == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        everything = elect(client, kind, None)
        assert topic in everything
        assert not any(everything.values()), "only partitions that needed an election are listed"


def test_an_unknown_kind_of_election_is_refused(client: RawClient) -> None:
    answer = client.request(ElectLeadersRequest(election_type=7, topic_partitions=None), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_partition_moves_only_to_brokers_that_exist(client: RawClient, topic: str) -> None:
    assert reassign(client, topic, 0, [7]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(client, topic, 0, []) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(client, topic, 0, [1, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(client, topic, 7, [1]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(client, "missing", 0, [1]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(client, topic, 0, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(client, topic, 0, [1]) == ErrorCode.NONE


def test_every_mention_is_answered(client: RawClient, topic: str) -> None:
    """As in Kafka: a topic without partitions, a topic and a partition that are there twice, in their order."""
    mentions: list[tuple[str, list[tuple[int, list[int] | None]]]] = [
        ("missing", []),
        (topic, [(0, [1]), (0, None), (0, [1])]),
        (topic, []),
        ("missing", [(3, [1])]),
        (topic, [(0, [7])]),
    ]
    asked = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=n, replicas=r) for n, r in rows])
        for name, rows in mentions
    ]
    answer = client.request(AlterPartitionReassignmentsRequest(topics=asked), 1)
    assert answer.error_code == 0
    assert [(each.name, [(p.partition_index, p.error_code) for p in each.partitions]) for each in answer.responses] == [
        ("missing", []),
        (topic, [(0, 0), (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), (0, 0)]),
        (topic, []),
        ("missing", [(3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        (topic, [(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)]),
    ]
    elections = [TopicPartitions(topic=name, partitions=[n for n, _ in rows]) for name, rows in mentions]
    answer = client.request(ElectLeadersRequest(election_type=0, topic_partitions=elections), 2)
    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [
        (each.topic, [(p.partition_id, p.error_code) for p in each.partition_result])
        for each in answer.replica_election_results
    ] == [
        ("missing", []),
        (topic, [(0, needless)] * 3),
        (topic, []),
        ("missing", [(3, unknown)]),
        (topic, [(0, needless)]),
    ]


def test_nothing_moves_in_a_cluster_of_one(client: RawClient, topic: str) -> None:
    named = [ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0])]
    for topics in (None, named):
        answer = client.request(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.topics) == (0, [])


def test_a_broker_that_runs_or_was_never_there_is_not_unregistered(client: RawClient) -> None:
    assert client.request(UnregisterBrokerRequest(broker_id=7), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert client.request(UnregisterBrokerRequest(broker_id=1), 0).error_code != 0
