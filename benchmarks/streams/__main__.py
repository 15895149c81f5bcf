"""`ottla.streams` beside Kafka Streams: the same broker, topologies and input, exactly once, taking turns.

`python -m benchmarks.streams` takes about ten minutes, `--quick` about six. The broker is Ottla, in a process of its
own. Each app is a program of its own with two tasks (local[2], two stream threads), starts with a full topic and is
measured once a third of it is done. CPU is that of all processes of the app without the broker: on a busy machine that
is the figure to trust. The results of every run are counted.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import side_by_side
from benchmarks.loads.topics import Mismatch
from benchmarks.peers.apache_kafka import VERSION
from benchmarks.report import Row
from benchmarks.side_by_side import SideBySide
from benchmarks.spark.latency import compute_percentile
from benchmarks.streams.apps import RunningApp, compile_kafka_streams_app
from benchmarks.streams.topics import (
    KEYS,
    ROWS_PER_MINUTE,
    add_rows,
    count_records,
    fill_input,
    fill_table,
    sum_newest_counts,
    sum_newest_numbers,
)

BEGIN, END = "<!-- measured with Streams -->", "<!-- end of what was measured with Streams -->"
NAMES = ("Ottla", "Kafka Streams")
PARTITIONS = 2
TABLE = "names"
RESTORED_SHARE = 3
"""Which part of the rows the restart has as keys."""


@dataclass(frozen=True)
class Size(side_by_side.Size):
    latencies: int


FULL = Size(pairs=1, rows=900_000, latencies=200)
QUICK = Size(pairs=1, rows=300_000, latencies=30)


class Bench:
    """One broker, and the inputs that have been filled so far."""

    def __init__(self, bootstrap: str, size: Size) -> None:
        self.bootstrap = bootstrap
        self.size = size
        self._inputs: set[str] = set()
        fill_table(bootstrap, TABLE, PARTITIONS)

    def input(self, rows: int, keys: int, partitions: int) -> str:
        """A topic whose rows have that many different keys."""
        topic = f"input-{rows}-{keys}-{partitions}"
        if topic not in self._inputs:
            self._inputs.add(topic)
            fill_input(self.bootstrap, topic, rows, keys, partitions)
        return topic


Workload = side_by_side.Workload[Bench]


def make_workload(name: str, title: str, topology: str, keys: int = KEYS, partitions: int = PARTITIONS) -> Workload:
    """`keys` 0 stands for as many as there are rows."""

    def run(bench: Bench, side: int) -> dict[Row, float]:
        rows = bench.size.rows
        different = keys or rows
        topic = bench.input(rows, different, partitions)
        due = find_due(topology, rows, different)
        with RunningApp(side, topology, bench.bootstrap, topic, TABLE, "", partitions) as app:
            is_behind_exchange = topology == "table-rekey"
            trial = app.drain(
                rows,
                rows // 3,
                lambda: not is_behind_exchange or count_results(bench.bootstrap, topology, app.output) == due,
            )
        found = count_results(bench.bootstrap, topology, app.output)
        if found != due:
            raise Mismatch(f"{app.name}: the results are {found} and should be {due}")
        return {
            Row(title, "k rows/s", more_is_better=True): trial.rows / trial.seconds / 1000,
            Row(f"{title}: CPU", "s/M rows", more_is_better=False): trial.cpu_seconds / trial.rows * 1e6,
        }

    return Workload(name, run)


def find_due(topology: str, rows: int, keys: int) -> tuple[int, int]:
    """What `count_results` must find. Both sides have the same input."""
    match topology:
        case "stateless":
            return rows - rows // 10, 0
        case "join":
            return rows, 0
        case "window":
            whole, rest = divmod(rows, ROWS_PER_MINUTE)
            return keys * whole + min(keys, rest), rows
        case "table-join":
            return keys, sum(range(rows - keys, rows))
        case "table-rekey":
            return min(keys, 100), keys
        case _:
            return keys, rows


def count_results(bootstrap: str, topology: str, output: str) -> tuple[int, int]:
    """How many records came out, or how many keys and the sum of their newest values."""
    match topology:
        case "stateless" | "join":
            return count_records(bootstrap, output), 0
        case "table-join":
            return sum_newest_numbers(bootstrap, output)
        case _:
            return sum_newest_counts(bootstrap, output)


def make_restore_workload(name: str, title: str) -> Workload:
    """Counts distinct keys, loses the state directory, and counts one row more."""

    def run(bench: Bench, side: int) -> dict[Row, float]:
        rows, topic = bench.size.rows // RESTORED_SHARE, f"{name}-{side}-{time.monotonic_ns()}"
        fill_input(bench.bootstrap, topic, rows, rows, PARTITIONS)
        with RunningApp(side, "count", bench.bootstrap, topic, TABLE, "", PARTITIONS) as app:
            app.drain(rows, rows // 3)
        add_rows(bench.bootstrap, topic, [rows], rows)
        with RunningApp(side, "count", bench.bootstrap, topic, TABLE, "", PARTITIONS, name=app.name) as again:
            seconds = again.measure_restart()
        if (found := sum_newest_counts(bench.bootstrap, app.output)) != (rows, rows + 1):
            raise Mismatch(f"{app.name}: the results are {found} and should be {(rows, rows + 1)}")
        return {Row(title, "s", more_is_better=False): seconds}

    return Workload(name, run)


def make_latency_workload(name: str, title: str, paces: tuple[str, str]) -> Workload:
    """`paces` are the interval_ms of Ottla and the commit.interval.ms of Kafka Streams, "" for the default."""

    def run(bench: Bench, side: int) -> dict[Row, float]:
        topic = f"{name}-{side}-{time.monotonic_ns()}"
        fill_input(bench.bootstrap, topic, rows=1, keys=1, partitions=1)
        with RunningApp(side, "stateless", bench.bootstrap, topic, TABLE, paces[side], 1) as app:
            start_seconds, found = app.measure_latencies(bench.size.latencies)
        values = {
            Row(f"latency, {title}, p{percent}", "ms", more_is_better=False): compute_percentile(found, percent)
            for percent in (50, 99)
        }
        return values | {Row(f"start to first result, {title}", "s", more_is_better=False): start_seconds}

    return Workload(name, run)


WORKLOADS = (
    make_workload("stateless", "filter and map", "stateless"),
    make_workload("count", "count by key, 1,000 keys", "count"),
    make_workload("count-distinct", "count by key, every key once", "count", keys=0),
    make_workload("window", "count by key and minute", "window"),
    make_workload("join", "join with a table", "join"),
    make_workload("table-join", "join of two tables", "table-join"),
    make_workload("table-rekey", "count of a table by another key", "table-rekey"),
    make_workload("hot-key", "count by key, one key", "count", keys=1),
    make_workload("partitions", "count by key, 100 partitions", "count", partitions=100),
    make_workload("empty-partitions", "count by key, 99 of 100 partitions empty", "count", keys=1, partitions=100),
    make_restore_workload("restore", "restart without the state directory to the first result"),
    make_latency_workload("latency", "defaults", ("", "")),
    make_latency_workload("latency-tuned", "no pause, commit.interval.ms=10", ("0", "10")),
)


def describe(size: Size) -> str:
    return (
        f"{size.rows:,} rows of about 100 B in {PARTITIONS} partitions, of which a third is not counted; "
        f"{size.rows // RESTORED_SHARE:,} keys for the restart; {size.latencies} single records."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    comparison = SideBySide(
        "benchmarks.streams",
        __doc__ or "",
        NAMES,
        VERSION,
        FULL,
        QUICK,
        "about six minutes",
        WORKLOADS,
        compile_kafka_streams_app,
        Bench,
        describe,
        (BEGIN, END),
    )
    return comparison.run(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
