"""The queries that are measured, the same for both connectors except for the format and its options.

Each query counts its rows and fails if one is missing. Only the query is timed, from its start until Spark has
finished it.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

import ottla.spark
from benchmarks.loads.topics import Mismatch, delete_topic
from benchmarks.spark.processes import SparkProcesses
from benchmarks.spark.topics import PARTITIONS, count_records, create_topic

TRIGGER = "1 second"
PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class Connector:
    name: str
    format: str
    reading: Mapping[str, str] = field(default_factory=dict)
    writing: Mapping[str, str] = field(default_factory=dict)
    by_helper: bool = False
    """Streams are written by `ottla.spark.write_stream`."""
    transactional: bool = False


STOCK = Connector("stock", "kafka")
STOCK_TUNED = Connector("stock, fetch.max.wait.ms=10", "kafka", reading={"kafka.fetch.max.wait.ms": "10"})
OTTLA = Connector("ottla", "ottla", transactional=True)
OTTLA_AT_LEAST_ONCE = Connector("ottla, at-least-once", "ottla", writing={"guarantee": "at-least-once"})
OTTLA_HELPER = Connector("ottla, write_stream", "ottla", by_helper=True, transactional=True)


@dataclass(frozen=True)
class Trial:
    """One run of a query: its rows, and the time and CPU it took."""

    rows: int
    seconds: float
    cpu_seconds: float

    @property
    def million_rows(self) -> float:
        return self.rows / 1e6


class Queries:
    """The queries, in one session and with one broker."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self._processes = SparkProcesses(spark)

    # Batches

    def read(self, connector: Connector, topic: str, rows: int, size: int) -> Trial:
        """Read a whole topic. All columns come out of the source; the query looks at some of them."""
        frame = self._reader(connector, topic).selectExpr(
            "count(*) as rows", "sum(length(value)) as bytes", "count(key) as keys", "max(partition) as last"
        )
        before, began = self._begin(), time.perf_counter()
        found = frame.collect()[0]
        trial = self._end(rows, time.perf_counter() - began, before)
        if tuple(found) != (rows, rows * size, rows, PARTITIONS - 1):
            raise Mismatch(f"{connector.name}, {topic}: {found} instead of {rows} rows of {size} bytes")
        return trial

    def write(self, connector: Connector, rows: int, size: int, codec: str) -> Trial:
        """Write rows to a new topic. Spark makes them from numbers, which costs next to nothing."""
        topic = create_topic(self.bootstrap)
        options = {**self._writing(connector), "topic": topic, "kafka.compression.type": codec}
        frame = self._rows(rows, size)
        before, began = self._begin(), time.perf_counter()
        frame.write.format(connector.format).options(**options).mode("append").save()
        trial = self._end(rows, time.perf_counter() - began, before)
        self._check(count_records(self.bootstrap, topic), rows, f"{connector.name}, write")
        delete_topic(self.bootstrap, topic)
        return trial

    def _rows(self, rows: int, size: int) -> DataFrame:
        text = "and so on, as it was before, " * (size // 29 + 1)
        value = f"substr(concat(string(id), ' {text}'), 1, {size})"
        numbers = self.spark.range(rows, numPartitions=PARTITIONS)
        return numbers.selectExpr("string(id % 1000) as key", f"{value} as value")

    # Streams

    def stream_read(self, connector: Connector, topic: str, rows: int, triggers: int) -> Trial:
        """Read a topic that is already full as a stream, in `triggers` batches."""
        frame = self._stream(connector, topic, maxOffsetsPerTrigger=str(rows // triggers))
        with self.checkpoint() as checkpoint:
            writer = frame.selectExpr("length(value) as bytes", "key", "offset").writeStream.format("noop")
            query = writer.trigger(processingTime=TRIGGER).option("checkpointLocation", checkpoint).start()
            return self._drain(query, rows)

    def copy(self, connector: Connector, topic: str, rows: int, triggers: int) -> Trial:
        """Copy a topic that is already full into a new one, in `triggers` batches."""
        sink = create_topic(self.bootstrap)
        frame = self._stream(connector, topic, maxOffsetsPerTrigger=str(rows // triggers)).select("key", "value")
        with self.checkpoint() as checkpoint:
            trial = self._drain(self.start_copy(connector, frame, sink, checkpoint, TRIGGER), rows)
        if connector.transactional:
            reading = {"kafka.isolation.level": "read_committed", "columns": "offset"}
            self._check(self._reader(OTTLA, sink, **reading).count(), rows, f"{connector.name}, copy")
        else:
            self._check(count_records(self.bootstrap, sink), rows, f"{connector.name}, copy")
        delete_topic(self.bootstrap, sink)
        return trial

    def start_continuous_copy(self, connector: Connector, topic: str, sink: str, checkpoint: str) -> StreamingQuery:
        """Start a query that copies every record as soon as it comes."""
        frame = self._stream(connector, topic).select("key", "value")
        return self.start_copy(connector, frame, sink, checkpoint, "0 seconds")

    def start_copy(
        self, connector: Connector, frame: DataFrame, sink: str, checkpoint: str, trigger: str
    ) -> StreamingQuery:
        options = self._writing(connector)
        if connector.by_helper:
            return ottla.spark.write_stream(
                frame, sink, checkpoint=checkpoint, options=options, trigger={"processingTime": trigger}
            )
        options |= {"topic": sink, "checkpointLocation": checkpoint}
        writer = frame.writeStream.format(connector.format).options(**options)
        return writer.trigger(processingTime=trigger).start()

    def _drain(self, query: StreamingQuery, rows: int) -> Trial:
        """Wait until everything is read. The first batch does not count, because it starts processes; nor do the pauses
        until the next trigger."""
        while not self._batches(query) and query.isActive:
            time.sleep(PAUSE_SECONDS)
        before = self._begin()
        query.processAllAvailable()
        first, *others = self._batches(query)
        counted = sum(batch["numInputRows"] for batch in others)
        milliseconds = sum(batch["durationMs"]["triggerExecution"] for batch in others)
        trial = self._end(counted, milliseconds / 1000, before)
        query.stop()
        self._check(counted + first["numInputRows"], rows, "rows of a stream")
        return trial

    @staticmethod
    def _batches(query: StreamingQuery) -> list[StreamingQueryProgress]:
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    # Around them

    def _reader(self, connector: Connector, topic: str, **options: str) -> DataFrame:
        given = {**self._reading(connector, topic), **options}
        return self.spark.read.format(connector.format).options(**given).load()

    def _stream(self, connector: Connector, topic: str, **options: str) -> DataFrame:
        given = {**self._reading(connector, topic), "startingOffsets": "earliest", **options}
        return self.spark.readStream.format(connector.format).options(**given).load()

    def _reading(self, connector: Connector, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **connector.reading}

    def _writing(self, connector: Connector) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **connector.writing}

    def _begin(self) -> float:
        return self._processes.cpu_seconds()

    def _end(self, rows: int, seconds: float, before: float) -> Trial:
        return Trial(rows, seconds, self._processes.cpu_seconds() - before)

    def read_largest_worker_mb(self) -> float:
        """Peak memory of the largest Python worker, in megabytes."""
        return self._processes.read_largest_worker_mb()

    @staticmethod
    def _check(found: int, rows: int, what: str) -> None:
        if found != rows:
            raise Mismatch(f"{what}: {found} instead of {rows} rows")

    @contextmanager
    def checkpoint(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="spark-benchmark-", ignore_cleanup_errors=True) as directory:
            yield str(Path(directory) / "checkpoint")
