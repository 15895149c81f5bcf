"""The contents of a partition, described and deleted: DeleteRecords, DescribeProducers, DescribeLogDirs."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import ottla.testing
from ottla.errors import ErrorCode
from ottla.records.batch import encode
from ottla.testing import LocalBroker
from ottla.wire.messages import delete_records as dr
from ottla.wire.messages import describe_log_dirs as dld
from ottla.wire.messages import describe_producers as dp
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient

HIGH_WATERMARK = -1
EARLIEST = -2


def produce(client: RawClient, topic: str, count: int, value: bytes = b"x") -> None:
    for _ in range(count):
        produced = client.produce(topic, 0, encode([(b"key", value, (), 1)]))
        assert produced is not None
        assert produced.error_code == 0


def delete(client: RawClient, topic: str, *offsets: tuple[int, int], version: int = 2) -> list[tuple[int, int, int]]:
    """Delete records. Returns partition, error code and new log start offset of each."""
    partitions = [dr.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets]
    request = dr.DeleteRecordsRequest(topics=[dr.DeleteRecordsTopic(name=topic, partitions=partitions)])
    (answer,) = client.request(request, version).topics
    assert answer.name == topic
    return [(each.partition_index, each.error_code, each.low_watermark) for each in answer.partitions]


def find_earliest(client: RawClient, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return int(client.request(request, 5).topics[0].partitions[0].offset)


# DeleteRecords


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_below_an_offset_are_gone(client: RawClient, topic: str, version: int) -> None:
    """The log starts at that offset: lower offsets are out of range, higher ones stay."""
    produce(client, topic, 5)
    assert delete(client, topic, (0, 3), version=version) == [(0, 0, 3)]
    assert find_earliest(client, topic) == 3
    assert client.fetch(topic, 0, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.fetch(topic, 0, 3).log_start_offset == 3


def test_the_log_start_never_moves_back(client: RawClient, topic: str) -> None:
    """A lower offset changes nothing, and the answer has the log start offset. -1 means the high watermark."""
    produce(client, topic, 5)
    assert delete(client, topic, (0, 3)) == delete(client, topic, (0, 1)) == [(0, 0, 3)]
    assert delete(client, topic, (0, HIGH_WATERMARK)) == delete(client, topic, (0, 5)) == [(0, 0, 5)]
    produce(client, topic, 1)
    assert client.fetch(topic, 0, 5).high_watermark == 6


def test_offsets_outside_of_the_log_cannot_be_deleted(client: RawClient, topic: str) -> None:
    """An offset past the high watermark, or below 0, gets OFFSET_OUT_OF_RANGE, and nothing is deleted."""
    produce(client, topic, 2)
    for offset in (3, -2, 1 << 62):
        assert delete(client, topic, (0, offset)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert find_earliest(client, topic) == 0


def test_each_partition_has_its_own_result(client: RawClient, topic: str) -> None:
    """An unknown partition does not affect another one. Of two offsets for one partition the last one counts."""
    produce(client, topic, 2)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(client, topic, (0, 1), (7, 1), (0, 2)) == [(0, 0, 2), (7, unknown, -1)]
    assert delete(client, "nope", (0, 1)) == [(0, unknown, -1)]


def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted(
    shared_broker: LocalBroker, client: RawClient
) -> None:
    """POLICY_VIOLATION, as in Kafka. With the policy compact,delete it works."""
    shared_broker.create_topic("compacted", cleanup_policy="compact")
    shared_broker.create_topic("both", cleanup_policy="compact,delete")
    for name in ("compacted", "both"):
        produce(client, name, 2)
    assert delete(client, "compacted", (0, 1)) == [(0, ErrorCode.POLICY_VIOLATION, -1)]
    assert delete(client, "both", (0, 1)) == [(0, 0, 1)]


def test_internal_topics_are_protected(client: RawClient, shared_broker: LocalBroker) -> None:
    """Records of internal topics belong to a coordinator. An unknown topic gets the error of an unknown topic."""
    assert delete(client, "__transaction_state", (0, 0)) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    shared_broker.create_topic("__transaction_state")
    assert delete(client, "__transaction_state", (0, 0)) == [(0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_deleted_records_stay_deleted(end: str) -> None:
    """The new log start is on disk before the answer, so a kill right after it brings nothing back."""
    with ottla.testing.broker() as broker:
        broker.create_topic("orders")
        with RawClient(broker.host, broker.port) as client:
            produce(client, "orders", 5)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        partition = TopicPartition("orders", 0, 4)
        result = admin.delete_records([partition])[partition].result(PATIENCE_S)
        assert result.low_watermark == 4
        getattr(broker, end)()
        broker.restart()
        with RawClient(broker.host, broker.port) as client:
            assert find_earliest(client, "orders") == 4
            assert client.fetch("orders", 0, 4).high_watermark == 5


def test_segments_without_a_record_left_are_removed() -> None:
    """Such segments leave the log at once, and their files are removed after file.delete.delay.ms."""
    with ottla.testing.broker(log_segment_delete_delay_ms=1000) as broker:
        broker.create_topic("orders", segment_bytes=1 << 20)
        segments = Path(broker.directory) / "orders-0"
        with RawClient(broker.host, broker.port) as client:
            produce(client, "orders", 6, bytes(400_000))
            assert len(list(segments.glob("*.log"))) == 3
            assert delete(client, "orders", (0, 5)) == [(0, 0, 5)]
            assert sorted(path.name for path in segments.glob("*.log")) == ["00000000000000000004.log"]
            (described,) = describe_directories(client, ("orders", [0]))
            assert described.topics[0].partitions[0].partition_size < 1_000_000
        broker.advance(seconds=2)
        assert not list(segments.glob("*.deleted"))


def test_a_new_topic_of_the_same_name_begins_at_0() -> None:
    """The new topic does not inherit the checkpoint of the old one, not even after a restart."""
    with ottla.testing.broker() as broker:
        broker.create_topic("orders")
        with RawClient(broker.host, broker.port) as client:
            produce(client, "orders", 3)
            assert delete(client, "orders", (0, 3)) == [(0, 0, 3)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["orders"])["orders"].result(PATIENCE_S)
        broker.create_topic("orders")
        broker.restart()
        with RawClient(broker.host, broker.port) as client:
            assert find_earliest(client, "orders") == 0


# DescribeProducers


def describe_producers(client: RawClient, topic: str, *indexes: int) -> list[Any]:
    request = dp.DescribeProducersRequest(topics=[dp.TopicRequest(name=topic, partition_indexes=list(indexes))])
    (answer,) = client.request(request, 0).topics
    return list(answer.partitions)


def test_producers_are_described(client: RawClient, topic: str) -> None:
    """Idempotent producers are listed with epoch, last sequence and time, others are not."""
    produce(client, topic, 1)
    assert describe_producers(client, topic, 0)[0].active_producers == []
    identity = client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
    for sequence in (0, 2):
        records = [(None, b"x", (), 1000 + sequence), (None, b"y", (), 1000 + sequence)]
        batch = encode(records, producer_id=identity.producer_id, producer_epoch=0, base_sequence=sequence)
        client.produce(topic, 0, batch)
    ((producer,),) = (each.active_producers for each in describe_producers(client, topic, 0))
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (identity.producer_id, 0, 3)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (1002, -1)


def test_unknown_partitions_have_an_error_instead_of_producers(client: RawClient, topic: str) -> None:
    """Each partition has its own code, and a message."""
    here, missing = describe_producers(client, topic, 0, 9)
    assert (here.error_code, missing.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert "9" in missing.error_message
    assert describe_producers(client, "nope", 0)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# DescribeLogDirs


def describe_directories(
    client: RawClient, *topics: tuple[str, list[int]], everything: bool = False, version: int = 5
) -> Any:
    asked = [dld.DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in topics]
    answer = client.request(dld.DescribeLogDirsRequest(topics=None if everything else asked), version)
    assert answer.error_code == 0
    return answer.results


@pytest.mark.parametrize("version", range(1, 6))
def test_data_directories_are_described(
    shared_broker: LocalBroker, client: RawClient, topic: str, version: int
) -> None:
    """The directory and the size of a partition, and from version 4 on the size of its volume."""
    produce(client, topic, 2)
    (directory,) = describe_directories(client, (topic, [0, 9]), ("nope", [0]), version=version)
    assert (directory.error_code, directory.log_dir) == (0, shared_broker.directory)
    ((partition,),) = ([*described.partitions] for described in directory.topics)
    size = (Path(shared_broker.directory) / f"{topic}-0" / f"{0:020}.log").stat().st_size
    assert (partition.partition_index, partition.partition_size) == (0, size)
    assert (partition.offset_lag, partition.is_future_key, directory.is_cordoned) == (0, False, False)
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes
    else:
        assert (directory.usable_bytes, directory.total_bytes) == (-1, -1)


def test_log_dirs_of_all_partitions_or_of_none(client: RawClient, topic: str) -> None:
    """Null asks for every partition, an empty list for none: the directory is described all the same."""
    (directory,) = describe_directories(client, everything=True)
    assert topic in [described.name for described in directory.topics]
    (directory,) = describe_directories(client)
    assert directory.topics == []
    assert directory.total_bytes > 0
