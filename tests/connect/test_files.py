"""File connectors on a broker and Spark."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from ottla.connect.connectors.files.directory_sink import DirectorySink
from ottla.connect.connectors.files.directory_source import DirectorySource
from ottla.connect.connectors.files.file_sink import FileStreamSink
from ottla.connect.connectors.files.file_source import FileStreamSource
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.connect.runs import count_records, read_group, read_offsets, read_records, running, wait_until
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_growing_file_becomes_records(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """Whole lines only, in order, once, over a restart; the offset is as Kafka Connect writes it."""
    file = tmp_path / "log.txt"
    config = {"file": file, "topic": "log-lines", "batch_size": 3}
    with running(spark, broker, FileStreamSource, "tail", **config) as tail:
        file.write_text("".join(f"line {n}\n" for n in range(10)) + "half", encoding="utf-8")
        wait_until(lambda: count_records(broker, "log-lines") == 10, lambda: tail.status)
        with file.open("a", encoding="utf-8") as more:
            more.write(" a line\r\nlast\n")
        wait_until(lambda: count_records(broker, "log-lines") == 12, lambda: tail.status)
    with file.open("a", encoding="utf-8") as more:
        more.write("Ünicode\n")
    with running(spark, broker, FileStreamSource, "tail", **config) as tail:
        wait_until(lambda: count_records(broker, "log-lines") == 13, lambda: tail.status)
        wait_until(lambda: tail.status is not None and tail.status.topics == {"log-lines"})
    values = [each["value"].decode() for each in read_records(broker, "log-lines")]
    assert values == [*(f"line {n}" for n in range(10)), "half a line", "last", "Ünicode"]
    assert read_offsets(broker, "tail") == [({"filename": str(file)}, {"position": file.stat().st_size})]


def test_records_become_lines_once(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """All records of two partitions, over a restart; the group has committed the ends."""
    broker.create_topic("to-file", partitions=2)
    file = tmp_path / "out.txt"
    for first in (0, 50):
        send(broker, "to-file", [{"value": f"{n}", "partition": n % 2} for n in range(first, first + 50)])
        with running(spark, broker, FileStreamSink, "lines", file=file, topics="to-file", tasks_max=2) as sink:
            ends = {TopicPartition("to-file", number): (first + 50) // 2 for number in range(2)}
            wait_until(lambda ends=ends: read_group(broker, "lines") == ends, lambda sink=sink: sink.status)  # type: ignore[misc]
    lines = [int(line) for line in file.read_text().splitlines()]
    assert sorted(lines) == list(range(100))
    assert [n for n in lines if n % 2] == list(range(1, 100, 2))


def test_a_directory_of_csv_becomes_one_of_parquet(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """Through a topic of JSON with schemas; each row is in one file."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = [f"{n},name {n}" for n in range(number * 10, number * 10 + 10)]
        (tmp_path / "in" / f"{number}.csv").write_text("\n".join(["id,name", *lines]) + "\n")
    converter = {"value_converter": "org.apache.kafka.connect.json.JsonConverter"}
    source = {"directory": tmp_path / "in", "topic": "rows", "format": "csv", "tasks_max": 2, **converter}
    with running(spark, broker, DirectorySource, "csv", **source) as run:
        wait_until(lambda: count_records(broker, "rows") == 30, lambda: run.status)
    schema = json.loads(read_records(broker, "rows")[0]["value"])["schema"]
    assert [each["field"] for each in schema["fields"]] == ["id", "name"]
    sink = {"directory": tmp_path / "out", "topics": "rows", "format": "parquet", "flush_size": 12, **converter}
    with running(spark, broker, DirectorySink, "parquet", rotate_schedule_interval_ms=0, **sink) as run:
        found: list[Path] = []

        def read() -> list[dict[str, str]]:
            found[:] = sorted((tmp_path / "out" / "topics").rglob("*.parquet"))
            return [row for file in found for row in pq.ParquetFile(file).read().to_pylist()]

        wait_until(lambda: len(read()) == 30, lambda: run.status)
    assert sorted(read(), key=lambda row: int(row["id"])) == [{"id": f"{n}", "name": f"name {n}"} for n in range(30)]
    assert len(found) >= 3
