"""`format("ottla")` beside Spark's own Kafka connector: the same queries, one session, one broker, taking turns.

`python -m benchmarks.spark --pairs 2` takes about six minutes, `--quick` about two. The broker is Ottla, or with
--apache a real Apache Kafka. Who goes first alternates from pair to pair, and a ratio is the median of the ratios of
the pairs. CPU is that of Spark alone (JVM, Python workers, driver), without the broker, in seconds per million rows: on
a busy machine that is the figure to trust. Rows are counted in every run.

The stock connector writes streams at least once. Ottla writes them exactly once, in two ways that each have rows of
their own (`writeStream.format("ottla")` and `ottla.spark.write_stream`), and at least once, for a comparison of the
same guarantee.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from pyspark.sql import SparkSession

import ottla.spark
from benchmarks.comparison import Contest, Results, Turns, add_options, is_chosen, print_progress, publish
from benchmarks.loads.topics import Mismatch
from benchmarks.peers.apache_kafka import ApacheKafka, Unavailable
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.report import OtherPrograms, Row, describe_machine
from benchmarks.spark.latency import compute_percentile, measure_latencies
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
from benchmarks.spark.stock_connector import find_connector_jars
from benchmarks.spark.topics import PARTITIONS, create_filled_topic
from benchmarks.workloads import format_size

BEGIN, END = "<!-- measured with Spark -->", "<!-- end of what was measured with Spark -->"
PATIENCE_SECONDS = 330
"""Rows that begin later than this are measured once, so that a run ends on a slow machine too. Not with --pairs."""
SESSION = {"spark.driver.memory": "2g"}
BROKER = {"log.segment.delete.delay.ms": "1000"}  # otherwise deleted topics fill the page cache for a minute


@dataclass(frozen=True)
class Size:
    """How much is read and written, and so how long a run takes."""

    pairs: int
    read: int
    """Rows of 100 B. Of 1 KB there are a fifth as many, here and below."""
    written: int
    triggers: int
    latencies: int

    def rows(self, most: int, size: int) -> int:
        return most if size < 1000 else most // 5


FULL = Size(pairs=2, read=2_000_000, written=1_000_000, triggers=5, latencies=30)
QUICK = Size(pairs=1, read=200_000, written=100_000, triggers=2, latencies=10)


class Bench:
    """One broker, one session, and the topics that have been filled so far."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, size: Size) -> None:
        self.size = size
        self.queries = Queries(spark, broker.bootstrap)
        self.worker_mb = 0.0
        """Memory of the largest Python worker so far."""
        self._broker = broker
        self._topics: dict[tuple[int, str], str] = {}

    def topic(self, size: int, codec: str) -> tuple[str, int]:
        """A topic full of values of that size, and how many rows it has."""
        rows = self.size.rows(self.size.read, size)
        if (size, codec) not in self._topics:
            self._topics[size, codec] = create_filled_topic(self._broker.bootstrap, rows, size, codec)
        return self._topics[size, codec], rows


Run = Callable[[Bench, Connector], dict[Row, float]]


@dataclass(frozen=True)
class Workload:
    name: str
    run: Run
    ours: Connector = OTTLA
    peer: Connector = STOCK


def make_values(title: str, trial: Trial) -> dict[Row, float]:
    return {
        Row(title, "M rows/s", more_is_better=True): trial.million_rows / trial.seconds,
        Row(f"{title}: CPU", "s/M rows", more_is_better=False): trial.cpu_seconds / trial.million_rows,
    }


def make_read_workload(size: int, codec: str) -> Workload:
    title = f"batch read {format_size(size)}{format_codec(codec)}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        topic, rows = bench.topic(size, codec)
        return make_values(title, bench.queries.read(connector, topic, rows, size))

    return Workload(f"read-{size}-{codec}", run)


def make_stream_workload(size: int, codec: str) -> Workload:
    title = f"stream read {format_size(size)}{format_codec(codec)}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        topic, rows = bench.topic(size, codec)
        trial = bench.queries.stream_read(connector, topic, rows, bench.size.triggers)
        return make_values(title, trial)

    return Workload(f"stream-{size}-{codec}", run)


def make_write_workload(size: int, codec: str) -> Workload:
    title = f"batch write {format_size(size)}{format_codec(codec)}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        rows = bench.size.rows(bench.size.written, size)
        return make_values(title, bench.queries.write(connector, rows, size, codec))

    return Workload(f"write-{size}-{codec}", run)


def make_copy_workload(size: int, kind: str, ours: Connector) -> Workload:
    title = f"topic to topic {format_size(size)}, {kind}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        topic, rows = bench.topic(size, "none")
        return make_values(title, bench.queries.copy(connector, topic, rows, bench.size.triggers))

    return Workload(f"copy-{size}-{ours.name.rpartition(' ')[2]}", run, ours)


def make_latency_workload(kind: str, ours: Connector, peer: Connector) -> Workload:
    title = f"latency, {kind}"

    def run(bench: Bench, connector: Connector) -> dict[Row, float]:
        found = measure_latencies(bench.queries, connector, bench.size.latencies)
        return {
            Row(f"{title}, p{percent}", "ms", more_is_better=False): compute_percentile(found, percent)
            for percent in (50, 99)
        }

    return Workload(f"latency-{ours.name.rpartition(' ')[2]}-{peer.name.rpartition(' ')[2]}", run, ours, peer)


def format_codec(codec: str) -> str:
    return "" if codec == "none" else f", {codec}"


WORKLOADS = (
    *(make_read_workload(size, codec) for size in (100, 1000) for codec in ("none", "lz4", "zstd")),
    *(make_stream_workload(size, codec) for size, codec in ((100, "none"), (1000, "none"), (100, "lz4"))),
    *(make_write_workload(size, codec) for size, codec in ((100, "none"), (1000, "none"), (100, "lz4"))),
    make_copy_workload(100, "at least once", OTTLA_AT_LEAST_ONCE),
    make_copy_workload(100, "exactly once", OTTLA),
    make_copy_workload(100, "exactly once, write_stream", OTTLA_HELPER),
    make_copy_workload(1000, "exactly once", OTTLA),
    make_latency_workload("at least once, stock as it comes", OTTLA_AT_LEAST_ONCE, STOCK),
    make_latency_workload("at least once, stock tuned", OTTLA_AT_LEAST_ONCE, STOCK_TUNED),
    make_latency_workload("exactly once, stock tuned", OTTLA, STOCK_TUNED),
    make_latency_workload("exactly once, write_stream, stock tuned", OTTLA_HELPER, STOCK_TUNED),
)


def warm_up(bench: Bench) -> None:
    """Run every kind of query with both connectors, so that the JVM has compiled the code of both."""
    topic, rows = bench.topic(100, "none")
    for connector in (STOCK, OTTLA):
        print_progress(f"warming up {connector.name}")
        bench.queries.read(connector, topic, rows, 100)
        bench.queries.read(connector, topic, rows, 100)
        bench.queries.write(connector, bench.size.written // 2, 100, "none")
        bench.queries.copy(connector, topic, rows, 2)


def measure(bench: Bench, workloads: Sequence[Workload], turns: Turns) -> Results:
    results = Results()
    for workload in workloads:
        connectors = (workload.ours, workload.peer)
        try:
            for side in turns.take(workload.name, [connector.name for connector in connectors]):
                for row, value in workload.run(bench, connectors[side]).items():
                    results.add(row, value, side)
                bench.worker_mb = max(bench.worker_mb, bench.queries.read_largest_worker_mb())
        except Mismatch as reason:  # the other rows are worth having without this one
            results.failures.append(f"{workload.name}: {reason}")
    return results


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=(__doc__ or "").splitlines()[0])
    add_options(parser, [workload.name for workload in WORKLOADS], "about two minutes")
    parser.add_argument("--apache", action="store_true", help="with Apache Kafka as the broker instead of Ottla")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    size = QUICK if options.quick else FULL
    if options.pairs:
        size = replace(size, pairs=options.pairs)
    workloads = [workload for workload in WORKLOADS if is_chosen(workload.name, options.rows)]
    began, others = time.monotonic(), OtherPrograms()
    try:
        jars = find_connector_jars()
        broker: BrokerProcess = ApacheKafka(settings=BROKER) if options.apache else OttlaBroker(BROKER)
    except Unavailable as reason:
        print(f"Spark's own connector or Apache Kafka cannot run here: {reason}", file=sys.stderr)
        return 1
    with broker:
        spark = ottla.spark.session("benchmark", master=f"local[{PARTITIONS}]", config={**SESSION, "spark.jars": jars})
        bench = Bench(spark, broker, size)
        warm_up(bench)
        results = measure(bench, workloads, Turns(size.pairs, 2, None if options.pairs else PATIENCE_SECONDS))
        end_session(spark)
    conditions = describe_conditions(bench, broker.name, time.monotonic() - began, others.share())
    contest = Contest("Ottla", "stock connector", ())
    return publish(results, options, contest, conditions, {"size": asdict(size), "broker": broker.name}, (BEGIN, END))


def end_session(spark: SparkSession) -> None:
    """Stop the session and its JVM: the CPU time of a child process is known only when it has ended."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


def describe_conditions(bench: Bench, broker: str, seconds: float, share: float) -> str:
    around, size = describe_machine(), bench.size
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
