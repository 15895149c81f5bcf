"""Apache Kafka instead of Ottla, from Spark: source and both sinks."""

from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import ottla.spark
from benchmarks.peers.apache_kafka import ApacheKafka
from tests.patience import PATIENCE_S
from tests.spark.topics import committed, finish, reader, send, stream, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 60


def test_what_works_with_ottla_works_with_apache_kafka(
    spark: "SparkSession", apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    """The plain sink copies a topic, and the helper counts it, in several batches. The group shows its lag."""
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap})
    topics = [NewTopic(f"spark-{name}", 2, 1) for name in ("words", "copies", "counts")]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_S)
    send(apache_kafka, "spark-words", [{"value": f"{each}", "key": f"{each % 3}"} for each in range(ROWS)])
    options = {"kafka.bootstrap.servers": apache_kafka.bootstrap}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": ROWS // 2}
    words = stream(spark, apache_kafka, "spark-words", **limits).load().select("key", "value")
    plain = {**options, "topic": "spark-copies", "checkpointLocation": str(tmp_path / "copies")}
    finish(words.writeStream.format("ottla").options(**plain).trigger(availableNow=True).start())
    counts = words.groupBy("key").count().selectExpr("key", "string(count) as value")
    query = ottla.spark.write_stream(
        counts,
        "spark-counts",
        checkpoint=str(tmp_path / "counts"),
        mode="update",
        group="spark-counters",
        options=options,
        trigger={"availableNow": True},
    )
    finish(query)
    stable = {"kafka.isolation.level": "read_committed"}
    assert sorted(map(int, values(reader(spark, apache_kafka, "spark-copies", **stable).load()))) == list(range(ROWS))
    found = reader(spark, apache_kafka, "spark-counts", **stable).load()
    totals: dict[str, int] = {}
    for key, value in found.selectExpr("string(key)", "string(value)").collect():
        totals[key] = max(totals.get(key, 0), int(value))
    assert totals == {f"{key}": ROWS // 3 for key in range(3)}
    assert sum(committed(apache_kafka, "spark-counters", "spark-words", 2)) == ROWS
