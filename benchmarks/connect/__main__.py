"""Ottla's Connect beside Apache Kafka Connect: the same broker, connectors and rows, taking turns.

`python -m benchmarks.connect` takes about eight minutes, `--quick` about four. The broker is Ottla, in a process of its
own; a worker is alone, and a program of its own. A connector is measured once a third of its rows are done. Ottla moves
the rows exactly once, Kafka Connect at least once. CPU is that of all processes of the worker without the broker: on a
busy machine that is the figure to trust. The rows of every run are counted.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.comparison import Contest, Results, Turns, add_options, describe_run, is_chosen, print_progress, publish
from benchmarks.connect.workers import RunningWorker
from benchmarks.loads.topics import Mismatch, create_topic
from benchmarks.peers.apache_kafka import VERSION, Unavailable, find_jars
from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.report import OtherPrograms, Row, format_number
from benchmarks.streams.topics import FILLER, count_records, fill_input
from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.topic_partition import TopicPartition

BEGIN, END = "<!-- measured with Connect -->", "<!-- end of what was measured with Connect -->"
NAMES = ("Ottla", "Kafka Connect")
LINE = "and so on, as it was before, " * 3
"""Makes lines of about 100 bytes."""


@dataclass(frozen=True)
class Size:
    pairs: int
    rows: int


FULL = Size(pairs=2, rows=2_000_000)
QUICK = Size(pairs=1, rows=600_000)

Run = Callable[[str, Size, int], dict[Row, float]]
"""Measures one side on a broker, 0 for Ottla and 1 for Kafka Connect."""


@dataclass(frozen=True)
class Workload:
    name: str
    run: Run


def measure_source(bootstrap: str, size: Size, side: int) -> dict[Row, float]:
    with RunningWorker(side, bootstrap) as worker, closing(Client({"bootstrap.servers": bootstrap})) as client:
        topic, file = f"{worker.name}-lines", worker.directory / "lines.txt"
        with file.open("w") as lines:
            lines.writelines(f"{LINE}{number}\n" for number in range(size.rows))
        create_topic(bootstrap, topic)
        where = {TopicPartition(topic, 0): LATEST}

        def count() -> int:
            """The end of the topic, with a control record for each transaction of Ottla."""
            return sum(each.offset for each in client.list_offsets(where, READ_COMMITTED).values())

        worker.create("lines", {"connector.class": "FileStreamSource", "file": str(file), "topic": topic})
        found = _measure(worker, "FileStreamSource", size.rows, count)
        records = count_records(bootstrap, topic)
        if records != size.rows:
            raise Mismatch(f"{worker.name}: {records} records are in the topic, and the file has {size.rows} lines")
    return found


def measure_sink(bootstrap: str, size: Size, side: int) -> dict[Row, float]:
    with RunningWorker(side, bootstrap) as worker:
        topic, file = f"{worker.name}-rows", worker.directory / "rows.txt"
        fill_input(bootstrap, topic, size.rows, 1_000, 1)
        config = {"connector.class": "FileStreamSink", "file": str(file), "topics": topic}
        bytes_due = sum(len(f"{FILLER} {number}\n") for number in range(size.rows))

        def count() -> int:
            return file.stat().st_size * size.rows // bytes_due if file.exists() else 0

        worker.create("rows", config)
        found = _measure(worker, "FileStreamSink", size.rows, count)
        lines = _count_lines(file)
        if lines != size.rows:
            raise Mismatch(f"{worker.name}: {lines} lines were written, and {size.rows} records are in the topic")
    return found


def _measure(worker: RunningWorker, title: str, rows: int, count: Callable[[], int]) -> dict[Row, float]:
    """From the moment at which a third of the rows is done until all are."""
    worker.wait_until(lambda: count() >= rows // 3, "a third of the rows is not done")
    first, began, before = count(), time.perf_counter(), worker.usage.cpu_seconds
    if first >= rows:
        raise Mismatch(f"{worker.name}: {rows} rows are done at once; it takes more (--input) to measure")
    worker.wait_until(lambda: count() >= rows, "the rows are not done")
    seconds, cpu_seconds = time.perf_counter() - began, worker.usage.cpu_seconds - before
    return {
        Row(title, "k rows/s", more_is_better=True): (rows - first) / seconds / 1000,
        Row(f"{title}: CPU", "s/M rows", more_is_better=False): cpu_seconds / (rows - first) * 1e6,
    }


def _count_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def make_start_workload(connectors: int) -> Workload:
    """Connectors that have nothing to read: seconds from the start of the worker until all run, and the memory then."""
    title = f"{connectors} connector" + ("s" if connectors > 1 else "")

    def run(bootstrap: str, size: Size, side: int) -> dict[Row, float]:
        with RunningWorker(side, bootstrap) as worker:
            topic = f"{worker.name}-lines"
            create_topic(bootstrap, topic)
            names = [f"lines-{number}" for number in range(connectors)]
            for name in names:
                file = worker.directory / name
                file.write_text("the only line\n")
                worker.create(name, {"connector.class": "FileStreamSource", "file": str(file), "topic": topic})
            worker.wait_until(
                lambda: count_records(bootstrap, topic) == connectors, f"the lines of {title} are not there"
            )
            seconds = time.perf_counter() - worker.began
            return {
                Row(f"start to the first line of {title}", "s", more_is_better=False): seconds,
                Row(f"memory with {title}", "MB", more_is_better=False): worker.usage.resident_bytes / 1e6,
            }

    return Workload(f"start-{connectors}", run)


WORKLOADS = (
    Workload("file-source", measure_source),
    Workload("file-sink", measure_sink),
    *(make_start_workload(connectors) for connectors in (1, 10, 25)),
)


def measure(bootstrap: str, size: Size, workloads: Sequence[Workload], turns: Turns) -> Results:
    results = Results()
    for workload in workloads:
        try:
            for side in turns.take(workload.name, NAMES):
                for row, value in workload.run(bootstrap, size, side).items():
                    results.add(row, value, side)
                    print_progress(f"  {row.name}: {format_number(value)} {row.unit}")
        except Mismatch as reason:  # the other rows are worth having without this one
            results.failures.append(f"{workload.name}: {reason}")
    return results


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.connect", description=(__doc__ or "").splitlines()[0])
    add_options(parser, [workload.name for workload in WORKLOADS], "about four minutes")
    parser.add_argument("--input", type=int, metavar="ROWS", help="how many rows a connector moves")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    size = QUICK if options.quick else FULL
    size = replace(size, pairs=options.pairs or size.pairs, rows=options.input or size.rows)
    workloads = [workload for workload in WORKLOADS if is_chosen(workload.name, options.rows)]
    began, others = time.monotonic(), OtherPrograms()
    try:
        find_jars()
    except Unavailable as reason:
        print(f"Kafka Connect cannot run here: {reason}", file=sys.stderr)
        return 1
    with OttlaBroker() as broker:
        results = measure(broker.bootstrap, size, workloads, Turns(size.pairs, 2))
    conditions = (
        f"{size.rows:,} rows of about 100 B, of which a third is not counted. {describe_run(size.pairs, began, others)}"
    )
    contest = Contest(NAMES[0], f"{NAMES[1]} {VERSION}", ())
    return publish(results, options, contest, conditions, {"size": asdict(size)}, (BEGIN, END))


if __name__ == "__main__":
    raise SystemExit(main())
