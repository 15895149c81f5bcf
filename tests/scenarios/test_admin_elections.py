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


def test_a_partition_that_is_named_twice_is_refused(client: RawClient, topic: str) -> None:
    twice = [ReassignablePartition(partition_index=0, replicas=[1])] * 2
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=twice)])
    assert client.request(request, 1).error_code == ErrorCode.INVALID_REQUEST


def test_nothing_moves_in_a_cluster_of_one(client: RawClient, topic: str) -> None:
    named = [ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0])]
    for topics in (None, named):
        answer = client.request(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.topics) == (0, [])


def test_a_broker_that_runs_or_was_never_there_is_not_unregistered(client: RawClient) -> None:
    assert client.request(UnregisterBrokerRequest(broker_id=7), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert client.request(UnregisterBrokerRequest(broker_id=1), 0).error_code != 0
