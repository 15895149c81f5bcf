"""The same admin requests to Apache Kafka and to this broker: the same codes, the same fields.

Messages, ids, addresses and sizes are each broker's own; lists come in any order.
"""

import time

import pytest

from ottla.records.batch import encode
from ottla.wire.message import Message
from ottla.wire.messages import alter_configs as replacing
from ottla.wire.messages import create_partitions as growing
from ottla.wire.messages import delete_records as deleting
from ottla.wire.messages import describe_configs as settings
from ottla.wire.messages import describe_log_dirs as directories
from ottla.wire.messages import describe_producers as producers
from ottla.wire.messages import describe_topic_partitions as paging
from ottla.wire.messages import incremental_alter_configs as altering
from ottla.wire.messages import update_features as features
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.kafka_peer import Clients
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.answer_comparison import OWN, strip_own_fields

ALSO_OWN = OWN | {"partition_size"}
"""Fields of internal topics, which differ because each broker stores its own records in them."""
TOPIC, BROKER, LOGGER, METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
MAX_TIMESTAMP = -3


@pytest.fixture(scope="module")
def both(both_clients: Clients) -> Clients:
    """Both brokers, each with the topics a and b of two partitions."""
    for client in both_clients:
        create(client, "a", "b")
    return both_clients


def create(client: RawClient, *names: str) -> None:
    """Create topics of two partitions, and wait until each has a leader."""
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
    client.request(CreateTopicsRequest(topics=topics, timeout_ms=PATIENCE_MS), 7)
    for name in names:
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=partitions)])
        while any(each.error_code for each in client.request(asked, 5).topics[0].partitions):
            pass


def alter(resource: int, name: str, *changes: tuple[str, int, str | None], **options: bool) -> Message:
    configs = [altering.AlterableConfig(name=key, config_operation=kind, value=text) for key, kind, text in changes]
    asked = altering.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    return altering.IncrementalAlterConfigsRequest(resources=[asked], **options)


def replace(resource: int, name: str, *changes: tuple[str, str | None]) -> Message:
    configs = [replacing.AlterableConfig(name=key, value=text) for key, text in changes]
    asked = replacing.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    return replacing.AlterConfigsRequest(resources=[asked])


def describe(resource: int, name: str, *keys: str) -> Message:
    asked = settings.DescribeConfigsResource(
        resource_type=resource, resource_name=name, configuration_keys=list(keys) or None
    )
    return settings.DescribeConfigsRequest(resources=[asked], include_synonyms=True)


def grow(*topics: tuple[str, int], assignments: list[list[int]] | None = None, validate_only: bool = False) -> Message:
    given = None
    if assignments is not None:
        given = [growing.CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in assignments]
    asked = [growing.CreatePartitionsTopic(name=name, count=count, assignments=given) for name, count in topics]
    return growing.CreatePartitionsRequest(topics=asked, timeout_ms=PATIENCE_MS, validate_only=validate_only)


def page(*names: str, limit: int = 2000, after: tuple[str, int] | None = None) -> Message:
    cursor = after and paging.DescribeTopicPartitionsRequestCursor(topic_name=after[0], partition_index=after[1])
    topics = [paging.TopicRequest(name=name) for name in names]
    return paging.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)


def delete(topic: str, *offsets: tuple[int, int]) -> Message:
    partitions = [deleting.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets]
    return deleting.DeleteRecordsRequest(
        topics=[deleting.DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=PATIENCE_MS
    )


def feature(name: str, level: int, upgrade_type: int = 1) -> Message:
    update = features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return features.UpdateFeaturesRequest(feature_updates=[update], validate_only=True)


REQUESTS: list[Message] = [
    DescribeClusterRequest(include_cluster_authorized_operations=True, include_fenced_brokers=True),
    DescribeClusterRequest(endpoint_type=2),
    DescribeClusterRequest(endpoint_type=7),
    page(),
    page("a", "b", "nope"),
    page(limit=1),
    page(limit=2),
    page("b", "a", limit=3, after=("a", 1)),
    page("a", "b", after=("a", 9)),
    page("b", after=("a", 0)),
    page("a", after=("a", -1)),
    page("b d"),
    grow(("a", 1)),
    grow(("a", 2), ("nope", 3)),
    grow(("a", 3), ("a", 4)),
    grow(("a", 3), assignments=[[9]]),
    grow(("a", 3), assignments=[[1, 1]]),
    grow(("a", 3), assignments=[[]]),
    grow(("a", 4), assignments=[[1]]),
    grow(("a", 9), validate_only=True),
    grow(("b", 3), assignments=[[1]]),
    delete("a", (0, 0), (1, -1)),
    delete("a", (0, 1), (1, -2)),
    delete("a", (7, 0)),
    delete("nope", (0, 0)),
    producers.DescribeProducersRequest(topics=[producers.TopicRequest(name="a", partition_indexes=[0, 7])]),
    directories.DescribeLogDirsRequest(topics=None),
    directories.DescribeLogDirsRequest(topics=[]),
    directories.DescribeLogDirsRequest(topics=[directories.DescribableLogDirTopic(topic="a", partitions=[0, 7])]),
    ListConfigResourcesRequest(),
    ListConfigResourcesRequest(resource_types=[TOPIC, LOGGER]),
    ListConfigResourcesRequest(resource_types=[3]),
    feature("metadata.version", 30),
    feature("metadata.version", 99),
    feature("metadata.version", 20),
    feature("metadata.version", -1, 3),
    feature("metadata.version", 30, 9),
    feature("nope", 1),
    describe(TOPIC, "a", "cleanup.policy", "max.message.bytes", "preallocate", "nope"),
    describe(TOPIC, "nope"),
    describe(TOPIC, ""),
    describe(BROKER, "1", "message.max.bytes", "log.cleanup.policy", "num.io.threads", "log.retention.hours"),
    describe(BROKER, "2"),
    describe(BROKER, "x"),
    describe(LOGGER, ""),
    describe(LOGGER, "2"),
    describe(3, "x"),
    alter(TOPIC, "a", ("flush.messages", SET, "5")),
    alter(TOPIC, "a", ("flush.messages", SET, "x")),
    alter(TOPIC, "a", ("flush.messages", SET, None)),
    alter(TOPIC, "a", ("flush.messages", APPEND, "5")),
    alter(TOPIC, "a", ("nope", SET, "5")),
    alter(TOPIC, "a", ("nope", DELETE, None)),
    alter(TOPIC, "a", ("flush.messages", SET, "7"), ("flush.messages", DELETE, None)),
    alter(TOPIC, "a", ("flush.messages", SET, "7"), validate_only=True),
    alter(TOPIC, "a", ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")),
    alter(TOPIC, "nope", ("flush.messages", SET, "5")),
    alter(TOPIC, "", ("flush.messages", SET, "5")),
    alter(TOPIC, "a", ("cleanup.policy", APPEND, "compact")),
    alter(TOPIC, "a", ("cleanup.policy", APPEND, "compact")),
    describe(TOPIC, "a", "cleanup.policy", "flush.messages", "min.compaction.lag.ms"),
    alter(TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete,nope")),
    describe(TOPIC, "a", "cleanup.policy"),
    alter(TOPIC, "a", ("cleanup.policy", SUBTRACT, "compact")),
    describe(TOPIC, "a", "cleanup.policy"),
    alter(BROKER, "1", ("node.id", SET, "4")),
    alter(BROKER, "1", ("num.partitions", DELETE, None)),
    alter(BROKER, "", ("num.partitions", SET, "4")),
    alter(BROKER, "1", ("message.max.bytes", SET, "x")),
    alter(BROKER, "2", ("message.max.bytes", SET, "5")),
    alter(BROKER, "1", ("message.max.bytes", SET, "5000")),
    alter(BROKER, "1", ("message.max.bytes", DELETE, None)),
    alter(LOGGER, "", ("root", SET, "INFO")),
    alter(LOGGER, "1", ("root", APPEND, "INFO")),
    alter(LOGGER, "1", ("root", DELETE, None)),
    alter(LOGGER, "1", ("there.is.none.such", SET, "INFO")),
    alter(3, "x", ("x", SET, "5")),
    describe(METRICS, "slow"),
    describe(METRICS, ""),
    alter(METRICS, "slow", ("interval.ms", SET, "60000"), ("metrics", SET, "org.apache.kafka.producer.,x")),
    alter(METRICS, "slow", ("match", APPEND, "client_id=orders-.*")),
    alter(METRICS, "slow", ("metrics", SUBTRACT, "x")),
    describe(METRICS, "slow"),
    ListConfigResourcesRequest(resource_types=[METRICS]),
    alter(METRICS, "slow", ("interval.ms", SET, "99")),
    alter(METRICS, "slow", ("interval.ms", SET, "3600001")),
    alter(METRICS, "slow", ("interval.ms", SET, "x")),
    alter(METRICS, "slow", ("match", SET, "nobody=x")),
    alter(METRICS, "slow", ("match", SET, "client_id=(")),
    alter(METRICS, "slow", ("nope", SET, "1")),
    alter(METRICS, "", ("interval.ms", SET, "60000")),
    alter(METRICS, "slow", ("interval.ms", DELETE, None), ("metrics", DELETE, None), ("match", DELETE, None)),
    ListConfigResourcesRequest(resource_types=[METRICS]),
    replace(TOPIC, "a", ("flush.messages", "6")),
    replace(TOPIC, "a", ("flush.messages", None)),
    replace(TOPIC, "a", ("flush.messages", "1"), ("flush.messages", "2")),
    replace(TOPIC, "nope"),
    replace(LOGGER, "1", ("root", "INFO")),
    describe(TOPIC, "a", "cleanup.policy", "flush.messages"),
]


def find_difference(kafka: RawClient, ottla: RawClient, request: Message, deadline: float) -> str | None:
    """Both answers if they differ, else None. Kafka describes a change a moment after it has answered it, so a request
    that only describes is repeated until the deadline."""
    version = type(request).VERSIONS[-1]
    while True:
        ours = ottla.request(request, version)
        theirs = kafka.request(request, version)
        if strip_own_fields(theirs, ALSO_OWN) == strip_own_fields(ours, ALSO_OWN):
            return None
        if not type(request).__name__.startswith(("Describe", "List")) or time.monotonic() > deadline:
            return f"{request}\n  Kafka: {theirs}\n  Ottla: {ours}"


def test_both_brokers_give_the_same_answer(both: Clients) -> None:
    """The newest version of each API, one request after the other: some build on what earlier ones changed."""
    deadline = time.monotonic() + PATIENCE_S
    different = [found for request in REQUESTS if (found := find_difference(*both, request, deadline)) is not None]
    assert not different, "\n".join(different)


def test_both_brokers_name_a_deleted_record_with_the_largest_timestamp(both: Clients) -> None:
    """After DeleteRecords the largest timestamp is still that of the segment. No other lookup finds deleted records."""
    batch = encode([(None, b"x", (), timestamp) for timestamp in (10, 90, 30, 20)])
    for client in both:
        create(client, "timed")
        produced = client.produce("timed", 0, batch)
        assert produced is not None and produced.error_code == 0
    for start in (0, 1, 2, 3, 4):
        for client in both:
            assert client.request(delete("timed", (0, start)), 2).topics[0].partitions[0].error_code == 0
        found = [[look_up(client, timestamp) for timestamp in (MAX_TIMESTAMP, -2, 0, 25, 90)] for client in both]
        assert found[0] == found[1], start
        assert found[0][0] == (90, 1)


def look_up(client: RawClient, timestamp: int) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="timed", partitions=[partition])])
    (found,) = client.request(asked, 7).topics[0].partitions
    return found.timestamp, found.offset
