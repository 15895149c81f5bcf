"""spark.readStream.format("ottla"): every record once, over micro-batches, restarts and new partitions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.spark.topics import committed, finish, send, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def run(spark: "SparkSession", broker: LocalBroker, topic: str, directory: Path, **options: Any) -> "StreamingQuery":
    """Run a query over all present records, into Parquet files with a checkpoint beside them."""
    frame = stream(spark, broker, topic, **{"startingOffsets": "earliest", **options}).load()
    query = (
        frame.selectExpr("topic", "partition", "offset", "string(value) as value")
        .writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    return query


def rows(spark: "SparkSession", directory: Path) -> list[tuple[str, int, int, str]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(directory / "rows")).collect())


def test_a_query_continues_where_it_stopped(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """Batches respect their limit. A restart reads what came since, and nothing twice. The group of a query that has
    ended has the offsets of its last batch."""
    broker.create_topic("clicks", partitions=2)
    send(broker, "clicks", [{"value": f"{number}", "partition": number % 2} for number in range(50)])
    options = {"maxOffsetsPerTrigger": 20, "kafka.group.id": "clicks-group"}
    query = run(spark, broker, "clicks", tmp_path, **options)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(sizes) == 50 and max(sizes) <= 22
    assert query.lastProgress is not None
    assert '"clicks":{"0":25,"1":25}' in str(query.lastProgress["sources"][0]["latestOffset"]).replace(" ", "").replace(
        "'", '"'
    )
    assert committed(broker, "clicks-group", "clicks", 2) == [25, 25]
    send(broker, "clicks", [{"value": f"{number}", "partition": number % 2} for number in range(50, 60)])
    run(spark, broker, "clicks", tmp_path, **options)
    assert committed(broker, "clicks-group", "clicks", 2) == [30, 30]
    assert rows(spark, tmp_path) == sorted(("clicks", number % 2, number // 2, str(number)) for number in range(60))


def test_new_topics_of_a_pattern_are_read(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """A topic that appears after the query began is read from its beginning."""
    broker.create_topic("shop-a")
    send(broker, "shop-a", [{"value": "first"}])
    run(spark, broker, "", tmp_path, subscribePattern="shop-.*")
    broker.create_topic("shop-b", partitions=2)
    send(broker, "shop-b", [{"value": "second", "partition": 1}])
    send(broker, "shop-a", [{"value": "third"}])
    run(spark, broker, "", tmp_path, subscribePattern="shop-.*")
    assert rows(spark, tmp_path) == [("shop-a", 0, 0, "first"), ("shop-a", 0, 1, "third"), ("shop-b", 1, 0, "second")]


def test_a_topic_that_was_created_again_is_reported(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """A query whose topic was deleted and created again stops with the offsets, or continues if it was told to."""
    broker.create_topic("lost")
    send(broker, "lost", [{"value": f"{number}"} for number in range(10)])
    run(spark, broker, "lost", tmp_path)
    delete_topic(broker, "lost")
    broker.create_topic("lost")
    send(broker, "lost", [{"value": "new"}])
    with pytest.raises(Exception, match="has read up to offset 10, and now it ends at 1"):
        run(spark, broker, "lost", tmp_path)
    run(spark, broker, "lost", tmp_path, failOnDataLoss="false")
    send(broker, "lost", [{"value": "newer"}])
    run(spark, broker, "lost", tmp_path, failOnDataLoss="false")
    assert rows(spark, tmp_path)[-1] == ("lost", 0, 9, "9")
    assert ("lost", 0, 1, "newer") in rows(spark, tmp_path)


def delete_topic(broker: LocalBroker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
