"""spark.read.format("ottla"): every row of a topic, compared with what was sent."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, commit_offsets
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S
from tests.spark.topics import reader, send, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_are_what_was_sent(spark: "SparkSession", broker: LocalBroker) -> None:
    """All columns are right, with keys, nulls, headers and times, from two partitions and every codec."""
    broker.create_topic("everything", partitions=2, retention_ms=-1)
    expected = []
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        record = {
            "value": None if number == 4 else f"value {number}".encode(),
            "key": f"key {number}".encode() if number % 2 else None,
            "partition": number % 2,
            "timestamp": 1_700_000_000_123 + number,
            "headers": [("a", b"1"), ("a", None)] if number == 1 else None,
        }
        send(broker, "everything", [record], **{"compression.type": codec})
        sent = datetime.fromtimestamp(1_700_000_000 + (123 + number) / 1000, UTC).replace(tzinfo=None)
        expected.append(
            (
                record["key"],
                record["value"],
                "everything",
                number % 2,
                number // 2,
                sent,
                0,
                [("a", b"1"), ("a", None)] if number == 1 else None,
            )
        )
    frame = reader(spark, broker, "everything", includeHeaders="true").load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    time = "cast(timestamp as timestamp_ntz) as timestamp"  # in UTC, whatever the local time zone is
    found = frame.selectExpr(*frame.columns[:5], time, *frame.columns[6:]).collect()
    rows = [(*row[:7], [tuple(each) for each in row[7]] if row[7] else None) for row in found]
    assert sorted(rows, key=lambda row: (row[3], row[4])) == sorted(expected, key=lambda row: (row[3], row[4]))


def test_a_part_of_a_topic_can_be_read(spark: "SparkSession", broker: LocalBroker) -> None:
    """Offsets and times limit what is read, and so do single partitions and chosen columns."""
    broker.create_topic("parts", partitions=2, retention_ms=-1)
    start = 1_700_000_000_000
    records = [{"value": f"{number}", "partition": number % 2, "timestamp": start + number} for number in range(20)]
    send(broker, "parts", records)
    bounds = {"startingOffsets": '{"parts": {"0": 8, "1": -2}}', "endingOffsets": '{"parts": {"0": -1, "1": 2}}'}
    assert values(reader(spark, broker, "parts", **bounds).load()) == ["16", "18", "1", "3"]
    times = {"startingTimestamp": start + 7, "endingTimestamp": start + 10}
    assert values(reader(spark, broker, "parts", **times).load()) == ["8", "7", "9"]
    assigned = reader(spark, broker, "parts", assign='{"parts": [1]}', columns="value").load()
    assert assigned.columns == ["value"]
    assert assigned.count() == 10
    tasks = reader(spark, broker, "parts", minPartitions=6).load()
    assert tasks.rdd.getNumPartitions() == 6
    assert sorted(values(tasks), key=int) == [str(number) for number in range(20)]


def test_only_committed_rows_are_read(spark: "SparkSession", broker: LocalBroker) -> None:
    """Only read_uncommitted returns rows of an aborted transaction."""
    broker.create_topic("decided")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "decider"})
    producer.init_transactions(PATIENCE_S)
    for value, end in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("decided", value)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)
    committed = reader(spark, broker, "decided", **{"kafka.isolation.level": "read_committed"}).load()
    assert values(committed) == ["kept"]
    assert values(reader(spark, broker, "decided").load()) == ["kept", "dropped"]


def test_reading_begins_at_the_offsets_of_a_group(spark: "SparkSession", broker: LocalBroker) -> None:
    """A partition without a committed offset is read from its beginning."""
    broker.create_topic("grouped", partitions=2)
    send(broker, "grouped", [{"value": f"{number}", "partition": number % 2} for number in range(6)])
    client = Client({"bootstrap.servers": broker.bootstrap})
    commit_offsets(client, "standing", {TopicPartition("grouped", 1): CommittedOffset(2)})
    client.close()
    options = {"kafka.group.id": "standing", "startingOffsets": "group"}
    assert values(reader(spark, broker, "grouped", **options).load()) == ["0", "2", "4", "5"]


def test_many_rows_are_read_once(spark: "SparkSession", broker: LocalBroker) -> None:
    """The topic has more rows than one Arrow batch or one answer. None is lost or repeated, and sums are right."""
    broker.create_topic("many", partitions=3)
    count = 100_000
    send(broker, "many", ({"value": f"{number:0100d}", "key": f"{number % 7}"} for number in range(count)))
    frame = reader(spark, broker, "many").load()
    row = frame.selectExpr(
        "count(*) as rows", "count(distinct partition, offset) as places", "sum(cast(string(value) as long)) as total"
    ).collect()[0]
    assert tuple(row) == (count, count, count * (count - 1) // 2)
    by_key = frame.groupBy("key").count().collect()
    assert {bytes(row["key"]): row["count"] for row in by_key} == {
        f"{key}".encode(): len(range(key, count, 7)) for key in range(7)
    }


def test_errors_are_one_clear_line(spark: "SparkSession", broker: LocalBroker) -> None:
    broker.create_topic("short")
    send(broker, "short", [{"value": "x"}])
    for options, said in (
        ({"subscribe": "missing"}, "there is no topic 'missing'"),
        ({"assign": '{"short": [3]}'}, "'short' has only 1 partitions"),
        ({"startingOffsets": '{"short": {"0": 9}}'}, "offset 9 is not there any more, only 0 to 1"),
        ({"startingTimestamp": "9999999999999"}, "no record at or after 9999999999999"),
        ({"subscribePattern": "["}, "'[' is not a regular expression"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "100"}, "127.0.0.1:1"),
    ):
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as error:
            reader(spark, broker, "short", **options).load().collect()
        assert said in str(error.value)
    with pytest.raises(Exception, match="column 'value' is binary, and not int"):
        reader(spark, broker, "short").schema("value int").load().collect()
