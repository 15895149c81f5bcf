"""Ottla's Connect beside Apache Kafka Connect: the same broker, connectors and rows, taking turns.

`python -m benchmarks.connect` takes about half an hour, `--quick` about ten minutes. The broker is Ottla, in a process
of its own; a worker is alone, and a program of its own. A connector is measured once a third of its rows are done.
Ottla moves the rows exactly once, Kafka Connect at least once. CPU is that of all processes of the worker without the
broker: on a busy machine that is the figure to trust. The rows of every run are counted.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.connect import buckets, clusters, databases
from benchmarks.connect.measuring import Bench, TopicEnds, Workload, measure_rows
from benchmarks.connect.workers import RunningWorker
from benchmarks.loads.topics import Mismatch, create_topic
from benchmarks.peers.apache_kafka import VERSION, find_jars
from benchmarks.report import Row
from benchmarks.side_by_side import SideBySide, Size
from benchmarks.spark.latency import compute_percentile
from benchmarks.streams.topics import FILLER, count_records, fill_input

BEGIN, END = "<!-- measured with Connect -->", "<!-- end of what was measured with Connect -->"
NAMES = ("Ottla", "Kafka Connect")
LINE = "and so on, as it was before, " * 3
"""Makes lines of about 100 bytes."""


FULL = Size(pairs=2, rows=2_000_000)
QUICK = Size(pairs=1, rows=1_000_000)
LATENCIES = 40


def measure_source(bench: Bench, side: int) -> dict[Row, float]:
    rows = bench.size.rows
    with RunningWorker(side, bench.bootstrap) as worker:
        topic, file = f"{worker.name}-lines", worker.directory / "lines.txt"
        with file.open("w") as lines:
            lines.writelines(f"{LINE}{number}\n" for number in range(rows))
        create_topic(bench.bootstrap, topic)
        with TopicEnds(bench.bootstrap, [topic]) as ends:
            worker.create("lines", {"connector.class": "FileStreamSource", "file": str(file), "topic": topic})
            found = measure_rows(worker, "FileStreamSource", rows, ends.count)
        worker.wait_until(lambda: count_records(bench.bootstrap, topic) >= rows, "the lines are not there")
        if (records := count_records(bench.bootstrap, topic)) != rows:
            raise Mismatch(f"{worker.name}: {records} records are in the topic, and the file has {rows} lines")
    return found


def measure_sink(bench: Bench, side: int) -> dict[Row, float]:
    with RunningWorker(side, bench.bootstrap) as worker:
        topic, file = f"{worker.name}-rows", worker.directory / "rows.txt"
        fill_input(bench.bootstrap, topic, bench.size.rows, 1_000, 1)
        config = {"connector.class": "FileStreamSink", "file": str(file), "topics": topic}
        bytes_due = sum(len(f"{FILLER} {number}\n") for number in range(bench.size.rows))

        def count() -> int:
            return file.stat().st_size * bench.size.rows // bytes_due if file.exists() else 0

        worker.create("rows", config)
        found = measure_rows(worker, "FileStreamSink", bench.size.rows, count)
        lines = _count_lines(file)
        if lines != bench.size.rows:
            raise Mismatch(f"{worker.name}: {lines} lines were written, and {bench.size.rows} records are in the topic")
    return found


def _count_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def make_start_workload(connectors: int) -> Workload:
    """Connectors that have little to read: seconds from the start of the worker until all have read a line, the memory
    then, and how long a further line of one of them takes."""
    title = f"{connectors} connector" + ("s" if connectors > 1 else "")

    def run(bench: Bench, side: int) -> dict[Row, float]:
        with RunningWorker(side, bench.bootstrap) as worker:
            topic = f"{worker.name}-lines"
            create_topic(bench.bootstrap, topic)
            files = [worker.directory / f"lines-{number}" for number in range(connectors)]
            for file in files:
                file.write_text("the only line\n")
                config = {"connector.class": "FileStreamSource", "file": str(file), "topic": topic}
                worker.create(file.name, config)
            worker.wait_until(
                lambda: count_records(bench.bootstrap, topic) == connectors, f"the lines of {title} are not there"
            )
            seconds, memory = time.perf_counter() - worker.began, worker.memory_bytes
            latencies = _measure_latencies(bench.bootstrap, worker, topic, files)
            return {
                Row(f"start to the first line of {title}", "s", more_is_better=False): seconds,
                Row(f"memory with {title}", "MB", more_is_better=False): memory / 1e6,
                Row(f"a line with {title}, p50", "ms", more_is_better=False): compute_percentile(latencies, 50),
            }

    return Workload(f"start-{connectors}", run)


def _measure_latencies(bootstrap: str, worker: RunningWorker, topic: str, files: Sequence[Path]) -> list[float]:
    """Milliseconds from the moment at which a line is in its file until it is committed in the topic."""
    found = []
    with TopicEnds(bootstrap, [topic]) as ends:
        for number in range(LATENCIES):
            before = ends.count()
            with files[number % len(files)].open("a") as file:
                file.write(f"line {number}\n")
            began = time.perf_counter()
            worker.wait_until(lambda before=before: ends.count() > before, "a line is not there", pause_seconds=0.002)  # type: ignore[misc]
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(0.1)  # for a worker that has nothing to do, as most of them do
    return found


WORKLOADS = (
    Workload("file-source", measure_source),
    Workload("file-sink", measure_sink),
    *databases.WORKLOADS,
    *buckets.WORKLOADS,
    *clusters.WORKLOADS,
    *(make_start_workload(connectors) for connectors in (1, 10, 25)),
)


def describe(size: Size) -> str:
    return (
        f"{size.rows:,} rows of about 100 B, of which a third is not counted. Change capture and the sink of "
        "PostgreSQL are beside Debezium's, a mirror is beside MirrorMaker 2. Pages that processes share count once."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    comparison = SideBySide(
        "benchmarks.connect",
        __doc__ or "",
        NAMES,
        VERSION,
        FULL,
        QUICK,
        "about ten minutes",
        WORKLOADS,
        find_kafka,
        Bench,
        describe,
        (BEGIN, END),
    )
    return comparison.run(arguments)


def find_kafka() -> None:
    """Raises Unavailable."""
    find_jars()


if __name__ == "__main__":
    raise SystemExit(main())
