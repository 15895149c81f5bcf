"""DescribeCluster, DescribeTopicPartitions and CreatePartitions, with Apache Kafka's error codes."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

import ottla.testing
from ottla.errors import ErrorCode
from ottla.records.batch import encode
from ottla.testing import LocalBroker
from ottla.wire.messages import create_partitions as cp
from ottla.wire.messages import describe_topic_partitions as dtp
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient

CLUSTER_OPERATIONS = 8096
TOPIC_OPERATIONS = 3576
NOT_ASKED = -(1 << 31)


# DescribeCluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described(shared_broker: LocalBroker, client: RawClient, version: int) -> None:
    """One broker, which is the controller, at the address that the client used."""
    answer = client.request(DescribeClusterRequest(), version)
    (broker,) = answer.brokers
    assert (answer.error_code, answer.controller_id, broker.broker_id) == (0, 1, 1)
    assert (broker.host, broker.port, broker.is_fenced) == (shared_broker.host, shared_broker.port, False)
    assert len(answer.cluster_id) == 22
    assert answer.cluster_authorized_operations == NOT_ASKED
    asked = client.request(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_endpoint_types_other_than_brokers_are_refused(client: RawClient, endpoint_type: int, code: ErrorCode) -> None:
    """Endpoint types other than the broker's are refused, with a message."""
    answer = client.request(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert answer.error_code == code
    assert answer.error_message
    assert not answer.brokers


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_lists_authorized_operations(client: RawClient, topic: str, version: int) -> None:
    """There is no authorizer, so all operations are listed, on request. From version 11 on those of the cluster are
    not."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], include_topic_authorized_operations=True)
    asked.include_cluster_authorized_operations = version < 11
    answer = client.request(asked, version)
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if version < 11 else NOT_ASKED)
    plain = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), version)
    assert plain.topics[0].topic_authorized_operations == plain.cluster_authorized_operations == NOT_ASKED


# DescribeTopicPartitions


def describe_topics(client: RawClient, *names: str, limit: int = 2000, after: tuple[str, int] | None = None) -> Any:
    cursor = after and dtp.DescribeTopicPartitionsRequestCursor(topic_name=after[0], partition_index=after[1])
    topics = [dtp.TopicRequest(name=name) for name in names]
    request = dtp.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
    return client.request(request, 0)


def list_partitions(answer: Any) -> list[tuple[str, int, list[int]]]:
    return [
        (topic.name, topic.error_code, [partition.partition_index for partition in topic.partitions])
        for topic in answer.topics
    ]


def read_cursor(answer: Any) -> tuple[str, int] | None:
    found = answer.next_cursor
    return found and (found.topic_name, found.partition_index)


@pytest.fixture(scope="module")
def three() -> Iterator[RawClient]:
    """A broker with the topics a, b and c of two partitions each, and nothing else."""
    with ottla.testing.broker(max_request_partition_size_limit=5) as broker:
        for name in "cab":
            broker.create_topic(name, 2)
        with RawClient(broker.host, broker.port) as connected:
            yield connected


def test_partitions_are_described_completely(three: RawClient) -> None:
    """The answer has leader, epoch and replicas. No replica is offline, and none outside of the ISR is eligible."""
    (topic,) = describe_topics(three, "a").topics
    assert (topic.is_internal, topic.topic_authorized_operations) == (False, TOPIC_OPERATIONS)
    assert topic.topic_id != bytes(16)
    for partition in topic.partitions:
        assert (partition.leader_id, partition.leader_epoch, partition.error_code) == (1, 0, 0)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert (partition.offline_replicas, partition.eligible_leader_replicas, partition.last_known_elr) == ([],) * 3


def test_pages_of_one_partition_list_all_partitions(three: RawClient) -> None:
    """Following the cursors, every partition comes once and in order; the last page has no cursor."""
    seen, at = [], None
    while True:
        answer = describe_topics(three, limit=1, after=at)
        seen += [(name, index) for name, _, indexes in list_partitions(answer) for index in indexes]
        at = read_cursor(answer)
        if at is None:
            break
    assert seen == [(name, index) for name in "abc" for index in (0, 1)]


def test_a_page_may_end_with_a_topic(three: RawClient) -> None:
    """The cursor then names the first partition of the next topic. After the last topic there is no cursor."""
    answer = describe_topics(three, "c", "a", "b", "b", limit=4)
    assert (list_partitions(answer), read_cursor(answer)) == ([("a", 0, [0, 1]), ("b", 0, [0, 1])], ("c", 0))
    assert read_cursor(describe_topics(three, "c", limit=2)) is None


def test_the_broker_limits_the_size_of_a_page(three: RawClient) -> None:
    """max.request.partition.size.limit cuts a page, and a limit below 1 counts as 1."""
    assert read_cursor(describe_topics(three, limit=2000)) == ("c", 1)
    assert list_partitions(describe_topics(three, limit=0)) == [("a", 0, [0])]


def test_cursors_that_name_no_existing_partition(three: RawClient) -> None:
    """After the last partition of a topic the next topic follows. Negative partitions and other topics are refused."""
    assert list_partitions(describe_topics(three, "b", "c", after=("b", 9))) == [("b", 0, []), ("c", 0, [0, 1])]
    assert [code for _, code, _ in list_partitions(describe_topics(three, "b", after=("b", -1)))] == [
        ErrorCode.INVALID_REQUEST
    ]
    assert [code for _, code, _ in list_partitions(describe_topics(three, "a", after=("b", 0)))] == [
        ErrorCode.INVALID_REQUEST
    ]


def test_unknown_topics(three: RawClient) -> None:
    """Unknown topics have an error code each, in the order of their names, and do not count towards the limit of a
    page."""
    answer = describe_topics(three, "a", "aa", "b d", limit=2)
    assert list_partitions(answer)[:1] == [("a", 0, [0, 1])]
    answer = describe_topics(three, "aa", "b d", "c")
    assert list_partitions(answer) == [
        ("aa", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ("b d", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ("c", 0, [0, 1]),
    ]


# CreatePartitions


def grow(
    client: RawClient, *topics: tuple[str, int], assignments: list[list[int]] | None = None, **options: Any
) -> list[tuple[str, int, str | None]]:
    version = int(options.pop("version", 3))
    asked = [
        cp.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assignments is None
            else [cp.CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in assignments],
        )
        for name, count in topics
    ]
    answer = client.request(cp.CreatePartitionsRequest(topics=asked, timeout_ms=PATIENCE_MS, **options), version)
    return [(result.name, result.error_code, result.error_message) for result in answer.results]


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_can_be_used_at_once(client: RawClient, topic: str, version: int) -> None:
    """When the answer comes, the partition is described, and can be written and read."""
    assert grow(client, (topic, 3), version=version) == [(topic, 0, None)]
    assert list_partitions(describe_topics(client, topic)) == [(topic, 0, [0, 1, 2])]
    produced = client.produce(topic, 2, encode([(None, b"x", (), 1)]))
    assert produced is not None
    assert (produced.error_code, produced.base_offset) == (0, 0)


def test_each_topic_has_its_own_result(client: RawClient, topic: str) -> None:
    """A topic that cannot grow does not affect another one. A topic that is named twice is refused."""
    results = grow(client, ("nope", 2), (topic, 2))
    assert [(name, code) for name, code, _ in results] == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic, ErrorCode.NONE),
    ]
    ((_, code, message),) = grow(client, (topic, 3), (topic, 4))
    assert code == ErrorCode.INVALID_REQUEST
    assert message
    ((_, code, message),) = grow(client, (topic, 1))
    assert code == ErrorCode.INVALID_PARTITIONS
    assert "2 partition" in (message or "")
    ((_, code, _),) = grow(client, (topic, 3), assignments=[[9]])
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert list_partitions(describe_topics(client, topic)) == [(topic, 0, [0, 1])]


def test_validate_only_changes_nothing(client: RawClient, topic: str) -> None:
    """validate_only makes the same checks and gives the same answer, and the topic stays as it was."""
    assert grow(client, (topic, 9), validate_only=True) == [(topic, 0, None)]
    assert grow(client, (topic, 1), validate_only=True)[0][1] == ErrorCode.INVALID_PARTITIONS
    assert list_partitions(describe_topics(client, topic)) == [(topic, 0, [0])]


def test_new_partitions_survive_a_restart() -> None:
    """New partitions and their records are still there, as a client library sees them."""
    with ottla.testing.broker() as broker:
        broker.create_topic("orders")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(PATIENCE_S)
        with RawClient(broker.host, broker.port) as client:
            client.produce("orders", 2, encode([(None, b"x", (), 1)]))
        broker.restart()
        with RawClient(broker.host, broker.port) as client:
            assert list_partitions(describe_topics(client, "orders")) == [("orders", 0, [0, 1, 2])]
            assert client.fetch("orders", 2, 0).high_watermark == 1
