"""`format("ottla")` beside Spark's own Kafka connector: the same queries, one session, one broker, taking turns.

`python -m benchmarks.spark --pairs 2` takes about six minutes, `--quick` about two. The broker is Ottla, or with
--apache a real Apache Kafka. Who goes first changes with every pair, and a ratio is the median of the ratios of the
pairs. CPU is that of Spark alone (JVM, Python workers, driver), without the broker, in seconds for a million rows: on a
busy machine that is the figure to trust. Rows are counted in every run.

The stock connector writes streams at least once. Ottla's writes them exactly once, in two ways, each with a row of its
own: `writeStream.format("ottla")`, and `ottla.spark.write_stream`; and at least once, for a comparison of like with
like.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from pyspark.sql import SparkSession

import ottla.spark
from benchmarks.loads.topics import Mismatch
from benchmarks.peers.apache_kafka import ApacheKafka, Unavailable
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.report import Measurement, Neighbours, inserted, machine, table, wrapped
from benchmarks.spark.latency import latencies, percentile
from benchmarks.spark.queries import (
    OTTLA,
    OTTLA_AT_LEAST_ONCE,
    OTTLA_HELPER,
    STOCK,
    STOCK_TUNED,
    Connector,
    Queries,
    Trial,
)
from benchmarks.spark.stock_connector import connector_jars
from benchmarks.spark.topics import PARTITIONS, filled_topic
from benchmarks.workloads import Row, human

PEER = "stock connector"
BEGIN, END = "<!-- measured with Spark -->", "<!-- end of what was measured with Spark -->"
PATIENCE_SECONDS = 330
"""Rows that come later are measured once, so that a run on a slow machine ends before long as well."""
SESSION = {"spark.driver.memory": "2g"}
BROKER = {"log.segment.delete.delay.ms": "1000"}  # otherwise deleted topics fill the page cache for a minute


@dataclass(frozen=True)
class Size:
    """How long a run takes."""

    pairs: int
    read: int
    """Rows of 100 B; of 1 KB there are a fifth as many."""
    written: int
    triggers: int
    latencies: int

    def rows(self, most: int, size: int) -> int:
        return most if size < 1000 else most // 5


FULL = Size(pairs=2, read=2_000_000, written=1_000_000, triggers=5, latencies=30)
QUICK = Size(pairs=1, read=200_000, written=100_000, triggers=2, latencies=10)


class Bench:
    """One broker and one session, the topics that have been filled so far, and what came of each row."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, size: Size) -> None:
        self.size = size
        self.queries = Queries(spark, broker.bootstrap)
        self.measurements: dict[str, Measurement] = {}
        self.worker_mb = 0.0
        """Of the largest Python worker so far."""
        self._broker = broker
        self._topics: dict[tuple[int, str], str] = {}

    def topic(self, size: int, codec: str) -> tuple[str, int]:
        """A full topic, and how many rows it has."""
        rows = self.size.rows(self.size.read, size)
        if (size, codec) not in self._topics:
            self._topics[size, codec] = filled_topic(self._broker.bootstrap, rows, size, codec)
        return self._topics[size, codec], rows

    def add(self, row: Row, value: float, *, ours: bool) -> None:
        measurement = self.measurements.setdefault(row.name, Measurement(row))
        (measurement.ours if ours else measurement.peers).append(value)


Run = Callable[[Bench, Connector], dict[Row, float]]


@dataclass(frozen=True)
class Workload:
    name: str
    run: Run
    ours: Connector = OTTLA
    peer: Connector = STOCK


def trial_values(title: str, trial: Trial) -> dict[Row, float]:
    return {
        Row(title, "M rows/s", more_is_better=True): trial.million_rows / trial.seconds,
        Row(f"{title}: CPU", "s/M rows", more_is_better=False): trial.cpu_seconds / trial.million_rows,
    }


def read_workload(size: int, codec: str) -> Workload:
    title = f"batch read {human(size)}{named(codec)}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        topic, rows = bench.topic(size, codec)
        return trial_values(title, bench.queries.read(connector, topic, rows, size))

    return Workload(f"read-{size}-{codec}", run)


def stream_workload(size: int, codec: str) -> Workload:
    title = f"stream read {human(size)}{named(codec)}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        topic, rows = bench.topic(size, codec)
        trial = bench.queries.stream_read(connector, topic, rows, bench.size.triggers)
        return trial_values(title, trial)

    return Workload(f"stream-{size}-{codec}", run)


def write_workload(size: int, codec: str) -> Workload:
    title = f"batch write {human(size)}{named(codec)}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        rows = bench.size.rows(bench.size.written, size)
        return trial_values(title, bench.queries.write(connector, rows, size, codec))

    return Workload(f"write-{size}-{codec}", run)


def copy_workload(size: int, kind: str, ours: Connector) -> Workload:
    title = f"topic to topic {human(size)}, {kind}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        topic, rows = bench.topic(size, "none")
        return trial_values(title, bench.queries.copy(connector, topic, rows, bench.size.triggers))

    return Workload(f"copy-{size}-{ours.name.rpartition(' ')[2]}", run, ours)


def latency_workload(kind: str, ours: Connector, peer: Connector) -> Workload:
    title = f"latency, {kind}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        found = latencies(bench.queries, connector, bench.size.latencies)
        return {
            Row(f"{title}, p{percent}", "ms", more_is_better=False): percentile(found, percent) for percent in (50, 99)
        }

    return Workload(f"latency-{ours.name.rpartition(' ')[2]}-{peer.name.rpartition(' ')[2]}", run, ours, peer)


def named(codec: str) -> str:
    return "" if codec == "none" else f", {codec}"


WORKLOADS = (
    *(read_workload(size, codec) for size in (100, 1000) for codec in ("none", "lz4", "zstd")),
    *(stream_workload(size, codec) for size, codec in ((100, "none"), (1000, "none"), (100, "lz4"))),
    *(write_workload(size, codec) for size, codec in ((100, "none"), (1000, "none"), (100, "lz4"))),
    copy_workload(100, "at least once", OTTLA_AT_LEAST_ONCE),
    copy_workload(100, "exactly once", OTTLA),
    copy_workload(100, "exactly once, write_stream", OTTLA_HELPER),
    copy_workload(1000, "exactly once", OTTLA),
    latency_workload("at least once, stock as it comes", OTTLA_AT_LEAST_ONCE, STOCK),
    latency_workload("at least once, stock tuned", OTTLA_AT_LEAST_ONCE, STOCK_TUNED),
    latency_workload("exactly once, stock tuned", OTTLA, STOCK_TUNED),
    latency_workload("exactly once, write_stream, stock tuned", OTTLA_HELPER, STOCK_TUNED),
)


def warm_up(bench: Bench) -> None:
    """What the JVM has compiled for one connector, it has for both: each has its turn before anything is measured."""
    topic, rows = bench.topic(100, "none")
    for connector in (STOCK, OTTLA):
        progress(f"warming up {connector.name}")
        bench.queries.read(connector, topic, rows, 100)
        bench.queries.read(connector, topic, rows, 100)
        bench.queries.write(connector, bench.size.written // 2, 100, "none")
        bench.queries.copy(connector, topic, rows, 2)


def measure(bench: Bench, workloads: Sequence[Workload]) -> list[str]:
    """What failed: the other rows say what they say without it."""
    failures = []
    patient_until = time.monotonic() + PATIENCE_SECONDS
    for workload in workloads:
        sides = [(True, workload.ours), (False, workload.peer)]
        try:
            for pair in range(bench.size.pairs):
                if pair and time.monotonic() > patient_until:
                    break  # the table shows it: a row of one pair has no brackets
                for ours, connector in sides if pair % 2 == 0 else sides[::-1]:
                    progress(f"{workload.name}, pair {pair + 1} of {bench.size.pairs}, {connector.name}")
                    for row, value in workload.run(bench, connector).items():
                        bench.add(row, value, ours=ours)
                    bench.worker_mb = max(bench.worker_mb, bench.queries.largest_worker())
        except Mismatch as reason:
            failures.append(f"{workload.name}: {reason}")
    return failures


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=(__doc__ or "").splitlines()[0])
    names = ", ".join(workload.name for workload in WORKLOADS)
    parser.add_argument("--quick", action="store_true", help="one pair of short runs: two minutes, for a smoke test")
    parser.add_argument("--rows", default="*", help=f"comma-separated patterns of: {names}")
    parser.add_argument("--pairs", type=int, help="how many pairs of runs each row is the median of")
    parser.add_argument("--apache", action="store_true", help="against Apache Kafka instead of Ottla")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the table between its marks in this page")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    size = QUICK if chosen.quick else FULL
    if chosen.pairs:
        size = replace(size, pairs=chosen.pairs)
    patterns = [pattern.strip() for pattern in chosen.rows.split(",")]
    workloads = [workload for workload in WORKLOADS if any(fnmatchcase(workload.name, each) for each in patterns)]
    began, neighbours = time.monotonic(), Neighbours()
    try:
        jars = connector_jars()
        broker: BrokerProcess = ApacheKafka(settings=BROKER) if chosen.apache else OttlaBroker(BROKER)
    except Unavailable as reason:
        print(f"there is nothing to compare with: {reason}", file=sys.stderr)
        return 1
    with broker:
        spark = ottla.spark.session("benchmark", master=f"local[{PARTITIONS}]", config={**SESSION, "spark.jars": jars})
        bench = Bench(spark, broker, size)
        warm_up(bench)
        failures = measure(bench, workloads)
        end_session(spark)
    text = table(list(bench.measurements.values()), PEER)
    text += "\n\n" + wrapped(conditions(bench, broker.name, time.monotonic() - began, neighbours.share()))
    print(text)
    if chosen.markdown:
        page = chosen.markdown.read_text() if chosen.markdown.exists() else ""
        chosen.markdown.write_text(inserted(page, text, BEGIN, END))
    for failure in failures:
        print(f"\nThe table is not complete: {failure}", file=sys.stderr)
    return 1 if failures else 0


def end_session(spark: SparkSession) -> None:
    """With its JVM, whose CPU is known only when it has ended."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


def conditions(bench: Bench, broker: str, seconds: float, share: float) -> str:
    around, size = machine(), bench.size
    read, written = ((most, size.rows(most, 1000)) for most in (size.read, size.written))
    return (
        f"Broker: {broker}. {around['cores']} cores shared by Spark and the broker, {PARTITIONS} partitions and tasks, "
        f"{around['memory_gb']} GB, Python {around['python']}, {around['java']}; {read[0]:,} rows of 100 B or "
        f"{read[1]:,} of 1 KB are read, {written[0]:,} or {written[1]:,} are written by a batch; {size.pairs} pair(s), "
        f"{seconds:.0f} s in all. No Python worker had more than {bench.worker_mb:.0f} MB. Other programs took "
        f"{share:.0%} of the machine meanwhile."
    )


if __name__ == "__main__":
    raise SystemExit(main())
