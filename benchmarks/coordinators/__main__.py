"""Groups, committed offsets, transactions and compaction beside Apache Kafka, in turns.

`python -m benchmarks.coordinators` takes about fifteen minutes, `--quick` about two. Every run has a broker of its own
that begins with an empty directory. `--against DIR` compares with the Ottla of another checkout instead of Apache
Kafka.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

from benchmarks.comparison import (
    PATIENCE_SECONDS,
    Contest,
    Results,
    Turns,
    add_options,
    add_peer_options,
    choose_contest,
    describe_run,
    is_chosen,
    publish,
)
from benchmarks.coordinators import classic_rebalance, commits, compaction, consumer_rebalance, transactions
from benchmarks.coordinators.failure import BenchmarkFailure
from benchmarks.coordinators.size import FULL, QUICK, Size
from benchmarks.loads.topics import Mismatch
from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.report import OtherPrograms

BEGIN = "<!-- measured: groups, transactions, compaction -->"
END = "<!-- end of groups, transactions, compaction -->"
WORKLOADS = {
    "commits": commits,
    "rebalance-classic": classic_rebalance,
    "rebalance-consumer": consumer_rebalance,
    "transactions": transactions,
    "compaction": compaction,
}
"""Each module has SETTINGS, for the broker, and `measure`, which returns a value for each of its rows."""


def compare(names: Sequence[str], size: Size, contest: Contest, turns: Turns) -> Results:
    results = Results()
    for name in names:
        workload = WORKLOADS[name]
        try:
            for side in turns.take(name, (contest.ours, contest.peer)):
                with contest.makers[side](workload.SETTINGS) as broker:
                    for row, value in workload.measure(broker, size).items():
                        results.add(row, value, side)
        except (BenchmarkFailure, Mismatch, TimeoutError) as reason:  # the other rows are worth having without this one
            results.failures.append(f"{name}: {reason}")
    return results


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.coordinators", description=(__doc__ or "").splitlines()[0])
    add_options(parser, WORKLOADS, "about two minutes")
    add_peer_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    size = QUICK if options.quick else FULL
    if options.pairs:
        size = replace(size, pairs=options.pairs)
    names = [name for name in WORKLOADS if is_chosen(name, options.rows)]
    began, others, contest = time.monotonic(), OtherPrograms(), choose_contest(options)
    turns = Turns(size.pairs, len(contest.makers), None if options.pairs else PATIENCE_SECONDS)
    try:
        results = compare(names, size, contest, turns)
    except Unavailable as reason:
        print(f"Apache Kafka cannot run here: {reason}. --alone measures Ottla without it.", file=sys.stderr)
        return 1
    conditions = describe_run(size.pairs, began, others)
    return publish(results, options, contest, conditions, {"size": asdict(size)}, (BEGIN, END))


if __name__ == "__main__":
    raise SystemExit(main())
