"""File connectors on a broker and Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

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
