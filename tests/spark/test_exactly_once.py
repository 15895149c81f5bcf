"""Streaming queries that write topics: read_committed consumers get every row once, whatever is repeated."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import ottla.spark
from ottla.testing import LocalBroker
from tests.spark.topics import committed, finish, reader, send, stream, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BEGINNING_MS = 1_700_000_000_000
KEPT = {"retention_ms": -1}
"""For topics whose records have timestamps from long ago."""
COMMITTED = {"kafka.isolation.level": "read_committed"}


def plain_query(frame: "DataFrame", broker: LocalBroker, checkpoint: Path, **options: str) -> "StreamingQuery":
    settings = {"kafka.bootstrap.servers": broker.bootstrap, "checkpointLocation": str(checkpoint), **options}
    return frame.writeStream.format("ottla").options(**settings).trigger(availableNow=True).start()


def forget_last_commit(checkpoint: Path) -> None:
    """Remove Spark's last commit file, as if the driver had died after the sink finished and before Spark recorded
    it."""
    files = [file for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()]
    newest = max(files, key=lambda file: int(file.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_batch_that_spark_repeats_lands_once(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """writeStream.format("ottla"): the replay of a batch that is already committed writes nothing."""
    broker.create_topic("words", partitions=2, **KEPT)
    broker.create_topic("copies", partitions=3, **KEPT)
    send(broker, "words", [{"value": f"{n}", "key": f"{n % 5}", "timestamp": BEGINNING_MS - n} for n in range(40)])
    frame = stream(spark, broker, "words", startingOffsets="earliest").load().select("key", "value", "timestamp")
    finish(plain_query(frame, broker, tmp_path, topic="copies"))
    forget_last_commit(tmp_path)
    send(broker, "words", [{"value": "40", "timestamp": BEGINNING_MS - 40}])
    finish(plain_query(frame, broker, tmp_path, topic="copies"))
    found = reader(spark, broker, "copies", **COMMITTED).load()
    rows = found.selectExpr("int(string(value))", "unix_millis(timestamp)").collect()
    assert sorted(tuple(row) for row in rows) == [(number, BEGINNING_MS - number) for number in range(41)]


def test_at_least_once_is_an_option(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """After the same crash without transactions the batch is there twice. So the test above can detect a repetition."""
    broker.create_topic("again")
    broker.create_topic("copied-again")
    send(broker, "again", [{"value": "once"}])
    frame = stream(spark, broker, "again", startingOffsets="earliest").load().select("value")
    options = {"topic": "copied-again", "guarantee": "at-least-once"}
    finish(plain_query(frame, broker, tmp_path, **options))
    forget_last_commit(tmp_path)
    finish(plain_query(frame, broker, tmp_path, **options))
    assert values(reader(spark, broker, "copied-again", **COMMITTED).load()) == ["once", "once"]


@pytest.mark.parametrize(
    "mode", ["update", *(pytest.param(each, marks=pytest.mark.long) for each in ("append", "complete"))]
)
def test_a_batch_is_one_transaction(spark: "SparkSession", broker: LocalBroker, tmp_path: Path, mode: str) -> None:
    """write_stream: counts by key are there once, as each output mode gives them, and the group's offsets with them."""
    broker.create_topic(f"in-{mode}", partitions=2)
    broker.create_topic(f"out-{mode}", partitions=3, **KEPT)
    rows = stream(spark, broker, f"in-{mode}", startingOffsets="earliest").load().selectExpr("string(value) as key")
    frame = (
        rows.selectExpr("key", "'1' as value", "1000L as timestamp")
        if mode == "append"
        else rows.groupBy("key").count().selectExpr("key", "string(count) as value", "count * 1000 as timestamp")
    )

    def run() -> None:
        query = ottla.spark.write_stream(
            frame,
            f"out-{mode}",
            checkpoint=str(tmp_path),
            mode=mode,
            trigger={"availableNow": True},
            options={"kafka.bootstrap.servers": broker.bootstrap},
            group=f"group-{mode}",
        )
        finish(query)

    send(broker, f"in-{mode}", [{"value": word} for word in ("a", "b", "a")])
    run()
    forget_last_commit(tmp_path)
    send(broker, f"in-{mode}", [{"value": "b"}])
    run()
    written = reader(spark, broker, f"out-{mode}", **COMMITTED).load()
    found = written.selectExpr("string(key)", "string(value)", "unix_millis(timestamp)").collect()
    assert all(row[2] == int(row[1]) * 1000 for row in found)
    expected = {
        "append": [("a", "1"), ("a", "1"), ("b", "1"), ("b", "1")],
        "update": [("a", "2"), ("b", "1"), ("b", "2")],
        "complete": [("a", "2"), ("a", "2"), ("b", "1"), ("b", "2")],
    }
    assert sorted(tuple(row)[:2] for row in found) == expected[mode]
    assert sum(committed(broker, f"group-{mode}", f"in-{mode}", 2)) == 4


def test_what_a_sink_cannot_do_is_an_error(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    broker.create_topic("sink")
    frame = stream(spark, broker, "sink", startingOffsets="earliest").load()
    send(broker, "sink", [{"value": "x"}])
    for columns, options, said in (
        (["value", "topic"], {}, "ledgerTopic: rows name their topics themselves"),
        (["value"], {"topic": "sink", "kafka.acks": "1"}, "exactly-once needs acks=all"),
    ):
        with pytest.raises(PySparkException) as error:
            finish(plain_query(frame.select(*columns), broker, tmp_path / "plain", **options))
        assert said in str(error.value)
    for mode, columns, said in (
        ("replace", ["value"], "mode: 'replace'"),
        ("append", ["value", "topic"], "drop the column"),
    ):
        with pytest.raises(ValueError, match=said):
            ottla.spark.write_stream(
                frame.select(*columns),
                "sink",
                checkpoint=str(tmp_path),
                mode=mode,
                options={"kafka.bootstrap.servers": broker.bootstrap},
            )


def test_a_row_that_cannot_be_written_ends_the_query_with_one_line(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """A task finds the row, and the driver reports it. Nothing of the batch is visible, and the source's group has not
    moved."""
    broker.create_topic("large")
    broker.create_topic("small", partitions=2)
    send(broker, "large", [{"value": "x", "key": f"{number}"} for number in range(3)])
    rows = stream(spark, broker, "large", startingOffsets="earliest").load()
    query = ottla.spark.write_stream(
        rows.selectExpr("key", "repeat(string(value), if(offset = 1, 2000000, 1)) as value"),
        "small",
        checkpoint=str(tmp_path),
        options={"kafka.bootstrap.servers": broker.bootstrap},
        group="small-group",
        trigger={"availableNow": True},
    )
    with pytest.raises(PySparkException, match=r"batch 0 was not written to topic 'small': .* is larger than"):
        finish(query)
    assert values(reader(spark, broker, "small", **COMMITTED).load()) == []
    assert committed(broker, "small-group", "large", 1) == [-1001]
