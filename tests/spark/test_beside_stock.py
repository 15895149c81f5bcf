"""`format("ottla")` beside Spark's own Kafka connector: the same topics, options and rows give the same results.

The stock connector also runs against Ottla here, and ours against Apache Kafka.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.scenarios.test_compaction import COMPACTED, clean_end, wait_until
from tests.spark.beside import (
    CODECS,
    EACH,
    FIRST_MS,
    OURS,
    PARTITIONS,
    STOCK,
    batch,
    collect_rows,
    fill,
    make_topic,
    read_records,
)
from tests.spark.topics import finish, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("stock_connector")

TOPIC = "beside-stock"
PLAIN = len(CODECS) * EACH
NEVER_MS = 9_999_999_999_999
COMMITTED = {"kafka.isolation.level": "read_committed"}
NOT_AGAIN = {"fetchOffset.retryIntervalMs": 1}
"""The stock connector retries a refused request three times, a second apart."""


@pytest.fixture(scope="module")
def bootstrap(ottla_session_broker: LocalBroker) -> Iterator[str]:
    """The address of Ottla, with a topic that has every kind of record."""
    make_topic(ottla_session_broker.bootstrap, TOPIC)
    fill(ottla_session_broker.bootstrap, TOPIC)
    yield ottla_session_broker.bootstrap


def both(spark: "SparkSession", bootstrap: str, **options: Any) -> tuple["DataFrame", "DataFrame"]:
    if not {"assign", "subscribe", "subscribePattern"} & options.keys():
        options["subscribe"] = TOPIC
    stock, ours = (batch(spark, connector, bootstrap, **options) for connector in (STOCK, OURS))
    return stock, ours


def test_rows_and_columns_are_equal(spark: "SparkSession", bootstrap: str) -> None:
    """All columns are equal, for all kinds of records: headers, nulls, codecs, times, committed or not."""
    for options, count in (({}, PLAIN + 9), (COMMITTED, PLAIN + 6)):
        stock, ours = both(spark, bootstrap, includeHeaders="true", **options)
        assert ours.schema == stock.schema
        assert collect_rows(ours) == collect_rows(stock)
        assert len(collect_rows(ours)) == count
    stock, ours = both(spark, bootstrap)
    assert ours.schema == stock.schema


def test_times_of_the_broker_are_equal(spark: "SparkSession", bootstrap: str) -> None:
    make_topic(bootstrap, "appended", message_timestamp_type="LogAppendTime")
    fill(bootstrap, "appended")
    stock, ours = both(spark, bootstrap, subscribe="appended")
    found = collect_rows(ours)
    assert found == collect_rows(stock)
    assert {row[6] for row in found} == {1}


def test_a_compacted_topic_is_equal(spark: "SparkSession") -> None:
    """The topic has gaps in its offsets, and ranges of which no record is left."""
    with local_broker(log_cleaner_backoff_ms=50) as broker:
        make_topic(broker.bootstrap, "table", 1, **{name.replace(".", "_"): each for name, each in COMPACTED.items()})
        for turn in range(4):
            send(broker, "table", [{"key": f"{number % 20}", "value": f"{turn}" + "." * 90} for number in range(400)])
        wait_until(lambda: clean_end(broker, "table") >= 800, "compaction")
        for options in ({}, {"startingOffsets": '{"table": {"0": 7}}', "endingOffsets": '{"table": {"0": 390}}'}):
            stock, ours = both(spark, broker.bootstrap, subscribe="table", **options)
            assert collect_rows(ours) == collect_rows(stock)
            assert len(collect_rows(ours)) < 1000


OPTIONS: list[dict[str, Any]] = [
    {"startingOffsets": json.dumps({TOPIC: {"0": 3, "1": -2, "2": 5}})},
    {"startingOffsets": "earliest", "endingOffsets": json.dumps({TOPIC: {"0": 3, "1": -1, "2": 0}})},
    {"startingTimestamp": FIRST_MS + 9500, "endingTimestamp": FIRST_MS + 20_000},
    {"startingOffsetsByTimestamp": json.dumps({TOPIC: {"0": FIRST_MS, "1": FIRST_MS + 8000, "2": FIRST_MS + 1}})},
    {"endingOffsetsByTimestamp": json.dumps({TOPIC: {"0": FIRST_MS, "1": FIRST_MS + 8000, "2": NEVER_MS}})},
    {"startingTimestamp": NEVER_MS, "startingOffsetsByTimestampStrategy": "latest"},
    {"startingTimestamp": FIRST_MS + 30_000, "startingOffsets": "earliest"},
    {"subscribePattern": "beside-s.*"},
    {"subscribePattern": "nothing-fits-.*"},
    {"assign": json.dumps({TOPIC: [0, 2]})},
    {"minPartitions": 7},
    {"maxRecordsPerPartition": 4},
    {"minPartitions": 6, "startingOffsets": json.dumps({TOPIC: {"0": 15, "1": 15, "2": 0}})},
    {"includeHeaders": "true", "failOnDataLoss": "false", "groupIdPrefix": "mine"},
]


def test_options_have_the_same_meaning(spark: "SparkSession", bootstrap: str) -> None:
    """Each option must select some rows but not all. There are as many tasks as requested; the stock connector
    rounds."""
    counts = []
    for options in OPTIONS:
        stock, ours = both(spark, bootstrap, **options)
        found = collect_rows(ours)
        assert found == collect_rows(stock), options
        if "minPartitions" in options:
            assert ours.rdd.getNumPartitions() == options["minPartitions"] >= stock.rdd.getNumPartitions() > PARTITIONS
        counts.append(len(found))
    assert 0 in counts and len(set(counts)) > 6


REFUSED: list[dict[str, Any]] = [
    {"startingOffsets": "latest"},
    {"startingOffsets": json.dumps({TOPIC: {"0": 3}})},
    {"endingOffsets": "earliest"},
    {"startingTimestamp": NEVER_MS},
    {"subscribe": TOPIC, "assign": json.dumps({TOPIC: [0]})},
    {"minPartitions": "0"},
    {"startingOffsets": json.dumps({TOPIC: {"0": 10**6, "1": 0, "2": 0}})},
]


def test_what_one_refuses_the_other_refuses(spark: "SparkSession", bootstrap: str) -> None:
    for options in REFUSED:
        for connector in (STOCK, OURS):
            with pytest.raises(Exception) as error:
                settings = {"subscribe": TOPIC} if "assign" not in options else {}
                batch(spark, connector, bootstrap, **NOT_AGAIN, **settings | options).collect()
            assert str(error.value), (connector, options)


def test_written_records_are_equal(spark: "SparkSession", bootstrap: str) -> None:
    """Keys go to the same partitions in the same order, with headers and nulls, with and without a partition column."""
    header = "array(named_struct('key', 'n', 'value', binary(string(id))), named_struct('key', 'n', 'value', null))"
    keyed = "if(id % 4 = 3, null, string(id % 10)) as value"
    for number, columns in enumerate(
        (
            ["concat('key ', id) as key", keyed, f"if(id % 2 = 0, {header}, null) as headers"],
            ["binary(string(id)) as value", "int(id % 3) as partition"],
        )
    ):
        frame = spark.range(60).coalesce(1).selectExpr(*columns)
        found = []
        for connector in (STOCK, OURS):
            topic = f"written-{number}-{connector}"
            make_topic(bootstrap, topic)
            options = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true"}
            write(frame.selectExpr("*", f"'{topic}' as topic"), connector, **options)
            found.append(read_records(bootstrap, topic, 3))
        assert found[0] == found[1]
        assert sum(map(len, found[1])) == 60 and all(found[1])


def write(frame: "DataFrame", connector: str, **options: str) -> None:
    frame.write.format(connector).options(**options).mode("append").save()


def copy_all(
    spark: "SparkSession",
    connectors: tuple[str, str],
    bootstrap: str,
    checkpoint: Path,
    topics: tuple[str, str],
    **options: str,
) -> None:
    """Copy all present records, read by one connector and written by another, in several micro-batches."""
    source, sink = topics
    reading = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    frame = spark.readStream.format(connectors[0]).options(**reading, maxOffsetsPerTrigger="40").load()
    writing = {"kafka.bootstrap.servers": bootstrap, "topic": sink, "checkpointLocation": str(checkpoint), **options}
    writer = frame.select("key", "value").writeStream.format(connectors[1]).options(**writing)
    finish(writer.trigger(availableNow=True).start())


def read_copy(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    return sorted((record[:2] for part in read_records(bootstrap, topic, 2) for record in part), key=str)


@pytest.mark.long
def test_one_connector_continues_where_the_other_stopped(
    spark: "SparkSession", broker: LocalBroker, tmp_path: Path
) -> None:
    """Both connectors can use a query's checkpoint, for reading and for writing. The exception: an exactly-once sink
    has no ledger of what the stock connector wrote, and must be told to begin one."""
    bootstrap, topics = broker.bootstrap, ("taken-over", "taken-over-copy")
    for topic in topics:
        make_topic(bootstrap, topic, 2)
    expected: list[tuple[bytes, bytes]] = []

    def run(turn: int, connectors: tuple[str, str], **options: str) -> None:
        new = [{"key": f"{number % 5}", "value": f"{turn}.{number}"} for number in range(25)]
        send(broker, topics[0], new)
        expected.extend((each["key"].encode(), each["value"].encode()) for each in new)
        copy_all(spark, connectors, bootstrap, tmp_path, topics, **options)
        assert read_copy(bootstrap, topics[1]) == sorted(expected, key=str), (turn, connectors)

    run(0, (STOCK, STOCK))
    run(1, (OURS, STOCK))
    with pytest.raises(Exception, match=r"the ledger .* is gone"):
        run(2, (OURS, OURS))
    run(3, (OURS, OURS), withoutLedger="true")
    run(4, (STOCK, OURS))


def test_both_connectors_agree_on_apache_kafka(
    spark: "SparkSession", apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    """Our connector returns the rows of the stock connector there too, in batches and streams, and the stock connector
    reads what ours writes."""
    bootstrap = apache_kafka.bootstrap
    make_topic(bootstrap, TOPIC)
    fill(bootstrap, TOPIC)
    for options in (COMMITTED, {"startingTimestamp": FIRST_MS + 9500}, {"minPartitions": 7}):
        stock, ours = both(spark, bootstrap, includeHeaders="true", **options)
        assert collect_rows(ours) == collect_rows(stock) != []
    make_topic(bootstrap, "copied", 2)
    copy_all(spark, (OURS, OURS), bootstrap, tmp_path, (TOPIC, "copied"))
    written = collect_rows(batch(spark, STOCK, bootstrap, subscribe="copied", **COMMITTED))
    stock, _ = both(spark, bootstrap)
    assert sorted((row[:2] for row in written), key=str) == sorted((row[:2] for row in collect_rows(stock)), key=str)
