"""Keys and values as columns, by Spark itself. What each format and option does is in tests/unit/pyspark_ottla."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from ottla.pipeline.formats.choice import choose_format
from ottla.testing import LocalBroker
from pyspark_ottla.shapes import to_spark_type
from tests.spark.topics import finish, reader, received, send, stream
from tests.unit.client.shelf import Shelf, framed, served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENT = "id BIGINT, name STRING, at TIMESTAMP, tags ARRAY<STRING>, place STRUCT<x: DOUBLE, y: DECIMAL(9, 2)>"
SOUND = '{"id": 1, "name": "a", "at": "2024-05-01T10:00:00Z", "tags": ["x", "y"], "place": {"x": 0.5, "y": 1.25}}'


def test_a_topic_is_a_table_with_columns(spark: "SparkSession", broker: LocalBroker) -> None:
    """With SQL alone: a view of a topic with JSON has its fields as columns, and a bad record has nulls with a
    reason."""
    broker.create_topic("events")
    send(broker, "events", [{"key": "k", "value": SOUND}, {"value": "poison"}])
    spark.sql(f"""
        create temporary view events using ottla options (
            `kafka.bootstrap.servers` '{broker.bootstrap}', subscribe 'events', keyFormat 'string', valueFormat 'json',
            valueSchema '{EVENT}', expandValue 'true', badRecords 'null')
    """)
    query = "select key, id, unix_millis(at), tags[1], place.y + 1, substring(error, 1, 19) from events order by offset"
    rows = [tuple(row) for row in spark.sql(query).collect()]
    spark.catalog.dropTempView("events")
    assert [str(value) for value in rows[0]] == ["k", "1", "1714557600000", "y", "2.25", "None"]
    assert rows[1] == (None, None, None, None, None, "value: not the JSON")


def test_types_have_the_meaning_that_spark_gives_them(spark: "SparkSession") -> None:
    """We read a schema in SQL's notation as Spark's own parser reads it."""
    text = f"{EVENT}, a BYTE, b SMALLINT, c INT, d FLOAT, e BOOLEAN, f DATE, g BINARY, h TIMESTAMP_NTZ, `i j`: DECIMAL"
    assert to_spark_type(choose_format("json", schema=text)) == StructType.fromDDL(text)


def test_a_registry_and_a_bad_record_that_ends_the_query(spark: "SparkSession", broker: LocalBroker) -> None:
    """Tasks ask the registry for the schemas that values name. The error for the first bad value has its offset."""
    broker.create_topic("orders")
    send(broker, "orders", [{"value": framed(1, b"\x02")}, {"value": framed(2, b"\x04\x02x")}])
    with served(Shelf()) as url:
        orders = reader(spark, broker, "orders", valueFormat="avro", schemaRegistry=url)
        assert [tuple(row) for row in orders.load().select("value.*").collect()] == [(1, "-"), (2, "x")]
        send(broker, "orders", [{"value": framed(9, b"")}])
        with pytest.raises(PySparkException) as error:
            orders.load().collect()
    (line,) = [line for line in str(error.value).splitlines() if line.startswith("ottla.pipeline.formats.BadRecord: ")]
    assert "orders-0 at offset 2: value: schema 9: " in line and "Schema not found" in line


def test_a_stream_sends_bad_records_on(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """Over a restart, each valid record is a row once, and the others are unchanged in the dead-letter topic."""
    broker.create_topic("mixed")
    broker.create_topic("mixed-dead")
    options = {
        "valueFormat": "json",
        "valueSchema": "id INT",
        "badRecords": "dead-letter",
        "columns": "value,offset",
        "deadLetterTopic": "mixed-dead",
        "startingOffsets": "earliest",
    }
    frame = stream(spark, broker, "mixed", **options).load().selectExpr("value.id", "offset")
    for round_ in range(2):
        send(broker, "mixed", [{"value": f'{{"id": {round_}}}'}, {"key": f"{round_}", "value": "poison"}])
        settings = {"path": str(tmp_path / "rows"), "checkpointLocation": str(tmp_path / "checkpoint")}
        finish(frame.writeStream.format("parquet").options(**settings).trigger(availableNow=True).start())
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(tuple(row) for row in rows) == [(0, 0), (1, 2)]
    letters = received(broker, "mixed-dead", 2)
    assert [(letter.key(), letter.value()) for letter in letters] == [(b"0", b"poison"), (b"1", b"poison")]
    assert dict(letters[1].headers() or [])["__connect.errors.offset"] == b"3"
