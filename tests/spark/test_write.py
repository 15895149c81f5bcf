"""df.write.format("ottla"): rows become records, read back by an ordinary client."""

import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ottla.testing import LocalBroker
from tests.spark.topics import reader, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(frame: "DataFrame", broker: LocalBroker, **options: str) -> None:
    frame.write.format("ottla").mode("append").option("kafka.bootstrap.servers", broker.bootstrap).options(
        **options
    ).save()


def test_rows_become_records(spark: "SparkSession", broker: LocalBroker) -> None:
    """Keys, nulls, headers, partitions and topics of each row are written. The topic option overrides the topic
    column."""
    for topic in ("left", "right"):
        broker.create_topic(topic, partitions=3)
    rows = [
        ("left", 2, "a", "one", [("h", b"1"), ("h", None)]),
        ("right", 1, None, "two", None),
        ("left", 0, "b", None, []),
    ]
    schema = "topic string, partition int, key string, value string, headers array<struct<key:string,value:binary>>"
    frame = spark.createDataFrame(rows, schema)
    write(frame, broker)
    found = reader(spark, broker, "left,right", includeHeaders="true").load()
    texts = found.selectExpr("topic", "partition", "string(key) key", "string(value) value", "headers").collect()
    assert sorted((*row[:4], [tuple(each) for each in row[4] or []]) for row in texts) == sorted(
        (*row[:4], row[4] or []) for row in rows
    )
    write(frame.select("topic", "value"), broker, topic="right", **{"kafka.compression.type": "zstd"})
    assert reader(spark, broker, "right").load().count() == 4


@pytest.mark.parametrize("kind", ["timestamp", "long"])
def test_a_timestamp_column_becomes_the_timestamp_of_the_record(
    spark: "SparkSession", broker: LocalBroker, kind: str
) -> None:
    """As a timestamp or as milliseconds. A row without one gets the time at which it is written."""
    topic = f"timed-{kind}"
    broker.create_topic(topic, retention_ms=-1)  # these records are older than the retention
    before_ms = int(time.time() * 1000)
    moment = f"{'timestamp_millis' if kind == 'timestamp' else ''}(bigint(value) * 1000 + 7)"
    frame = spark.createDataFrame([("3",), ("1",), ("2",), (None,)], "value string").coalesce(1)
    write(frame.selectExpr("value", f"{moment} as timestamp"), broker, topic=topic)
    rows = reader(spark, broker, topic).load().selectExpr("string(value)", "unix_millis(timestamp)").collect()
    assert [tuple(row) for row in rows[:3]] == [("3", 3007), ("1", 1007), ("2", 2007)]
    assert rows[3][0] is None and before_ms <= rows[3][1] <= int(time.time() * 1000)


def test_many_rows_arrive_once(spark: "SparkSession", broker: LocalBroker) -> None:
    broker.create_topic("written", partitions=3)
    count = 50_000
    write(spark.range(count).selectExpr("string(id) as value", "string(id % 7) as key"), broker, topic="written")
    found = values(reader(spark, broker, "written").load())
    assert sorted(map(int, found)) == list(range(count))


def test_rows_that_cannot_be_written_are_reported_in_one_line(spark: "SparkSession", broker: LocalBroker) -> None:
    broker.create_topic("unfit")
    words = spark.createDataFrame([("x", 1)], "value string, number int")
    for frame, options, said in (
        (words, {"topic": "unfit"}, "column 'number' is none of value, key, headers, topic, partition, timestamp"),
        (words.select("number"), {"topic": "unfit"}, "a column 'value' is needed"),
        (words.selectExpr("number as value"), {"topic": "unfit"}, "'value' is int, and must be string or binary"),
        (words.select("value"), {}, "no topic"),
        (words.select("value"), {"topic": "missing"}, "there is no topic 'missing'"),
        (words.selectExpr("repeat(value, 2000000) as value"), {"topic": "unfit"}, "max.request.size"),
        (words.selectExpr("value", "5 as partition"), {"topic": "unfit"}, "partition"),
        (words.selectExpr("value", "'x' as timestamp"), {"topic": "unfit"}, "must be timestamp or long"),
        (words.selectExpr("value", "-5L as timestamp"), {"topic": "unfit"}, "row 0 has the timestamp -5 ms"),
        (words.selectExpr("value", "string(null) as topic"), {}, "topic"),
    ):
        with pytest.raises(PySparkException) as error:
            write(frame, broker, **options)
        assert said in str(error.value)


def test_the_default_mode_is_refused_by_spark_and_it_says_which_to_use(
    spark: "SparkSession", broker: LocalBroker
) -> None:
    """The one word that a batch job must add when it moves from format("kafka"): see docs/spark.md."""
    rows = spark.createDataFrame([("x",)], "value string")
    writer = rows.write.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", "any")
    with pytest.raises(PySparkException, match='use either the "Append"'):
        writer.save()
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        writer.mode("overwrite").save()
