"""Three Ottla brokers on ZooKeeper beside three Apache Kafka brokers (KRaft), in turns.

`python -m benchmarks.cluster` takes about half an hour, `--quick` about five minutes. Every run has a cluster of its
own that begins with empty directories. CPU and memory are those of all three brokers, ZooKeeper included.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from benchmarks.cluster import availability, bulk, many_partitions, partitions, propagation, transactions
from benchmarks.cluster.failure import BenchmarkFailure
from benchmarks.cluster.size import FULL, QUICK, Size
from benchmarks.comparison import (
    PATIENCE_SECONDS,
    Contest,
    Results,
    Turns,
    add_options,
    describe_run,
    is_chosen,
    publish,
)
from benchmarks.loads.jobs import JobFailure
from benchmarks.loads.topics import Mismatch
from benchmarks.peers.apache_kafka import VERSION, Unavailable
from benchmarks.peers.apache_kafka_cluster import ApacheKafkaCluster
from benchmarks.peers.broker_process import StartFailure
from benchmarks.peers.cluster_processes import ClusterProcesses
from benchmarks.peers.ottla_cluster import OttlaCluster
from benchmarks.report import OtherPrograms

BEGIN = "<!-- measured: three brokers -->"
END = "<!-- end of three brokers -->"
WORKLOADS = {
    "bulk": bulk,
    "transactions": transactions,
    "availability": availability,
    "propagation": propagation,
    "partitions": partitions,
    "many-partitions": many_partitions,
}
"""Each module has SETTINGS, for the brokers, and `measure`, which returns a value for each of its rows."""

MakeCluster = Callable[[Mapping[str, str]], ClusterProcesses]


def compare(names: Sequence[str], size: Size, makers: Sequence[MakeCluster], contest: Contest, turns: Turns) -> Results:
    results = Results()
    for name in names:
        workload = WORKLOADS[name]
        try:
            for side in turns.take(name, (contest.ours, contest.peer)):
                with makers[side](workload.SETTINGS) as cluster:
                    for row, value in workload.measure(cluster, size).items():
                        results.add(row, value, side)
        except (BenchmarkFailure, JobFailure, Mismatch, StartFailure, TimeoutError, ConnectionError) as reason:
            results.failures.append(f"{name}: {reason}")  # the other rows are worth having without this one
    return results


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.cluster", description=(__doc__ or "").splitlines()[0])
    add_options(parser, WORKLOADS, "about five minutes")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    size = QUICK if options.quick else FULL
    if options.pairs:
        size = replace(size, pairs=options.pairs)
    names = [name for name in WORKLOADS if is_chosen(name, options.rows)]
    began, others = time.monotonic(), OtherPrograms()
    makers: list[MakeCluster] = [OttlaCluster] if options.alone else [OttlaCluster, ApacheKafkaCluster]
    contest = Contest("Ottla", f"Apache Kafka {VERSION}", ())
    turns = Turns(size.pairs, len(makers), None if options.pairs else 3 * PATIENCE_SECONDS)
    try:
        results = compare(names, size, makers, contest, turns)
    except Unavailable as reason:
        print(f"Apache Kafka cannot run here: {reason}. --alone measures Ottla without it.", file=sys.stderr)
        return 1
    conditions = describe_run(size.pairs, began, others)
    return publish(results, options, contest, conditions, {"size": asdict(size)}, (BEGIN, END))


if __name__ == "__main__":
    raise SystemExit(main())
