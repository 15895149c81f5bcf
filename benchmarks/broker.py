"""The broker beside a real Apache Kafka: the same load generators, in one run, taking turns.

`python -m benchmarks.broker` takes about ten minutes, `--quick` about two. Both brokers run at the same time and only
one of them is under load; who goes first alternates from pair to pair; the JVM is warmed up before anything is
measured. A ratio is the median of the ratios of the pairs, so that a slow minute of the machine hits both sides. A row
that fails is reported at the end, and the others are measured all the same.

`--against DIR` compares with the Ottla of another checkout instead of Apache Kafka, and names the rows that are worse.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

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
    print_progress,
    publish,
)
from benchmarks.loads.jobs import JobFailure, run_job
from benchmarks.loads.small_requests import KINDS
from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.report import OtherPrograms
from benchmarks.workloads import (
    ACCEPTED,
    ANSWERED,
    CODECS,
    FULL,
    IDLE_MEMORY,
    LOADED_MEMORY,
    QUICK,
    WORKLOADS,
    Size,
    Workload,
    run_requests,
)

IDLE_SECONDS = 2.0
START = "start"
SETTINGS = {"log.segment.delete.delay.ms": "1000"}  # otherwise deleted topics fill the page cache for a minute


class Comparison:
    """Runs the workloads against the brokers of a contest, in turns, and collects the values of each row."""

    def __init__(self, size: Size, contest: Contest, patience_seconds: float | None) -> None:
        self.results = Results()
        self._size = size
        self._contest = contest
        self._names = (contest.ours, contest.peer)
        self._turns = Turns(size.pairs, len(contest.makers), patience_seconds)

    def measure_start(self) -> None:
        """Time to start, and memory when idle. The first start of each broker reads its files, and is not counted."""
        for make in self._contest.makers:
            with make(SETTINGS):
                pass
        for side in self._turns.take(START, self._names):
            broker = self._contest.makers[side](SETTINGS)
            try:
                times = broker.start()
                time.sleep(IDLE_SECONDS)
                resident = broker.usage().resident_bytes / 1e6
            finally:
                broker.stop()
            for row, value in ((ACCEPTED, times.accepted), (ANSWERED, times.answered), (IDLE_MEMORY, resident)):
                self.results.add(row, value, side)

    def measure_loads(self, workloads: Sequence[Workload]) -> None:
        with contextlib.ExitStack() as stack:
            brokers = [stack.enter_context(make(SETTINGS)) for make in self._contest.makers]
            for broker in brokers:
                warm_up(broker, self._size)
            for workload in workloads:
                try:
                    self._measure(workload, brokers)
                except (JobFailure, Unavailable) as reason:  # the other rows are worth having without this one
                    self.results.failures.append(f"{workload.name}: {reason}")
            for side, broker in enumerate(brokers):
                self.results.add(LOADED_MEMORY, broker.usage().resident_bytes / 1e6, side)

    def _measure(self, workload: Workload, brokers: Sequence[BrokerProcess]) -> None:
        for broker in brokers:
            workload.prepare(broker, self._size)
        for side in self._turns.take(workload.name, self._names):
            values = workload.measure(brokers[side], self._size)
            for row in workload.rows:
                self.results.add(row, values[row.name], side)


def warm_up(broker: BrokerProcess, size: Size) -> None:
    """Send enough of every kind of request that the JVM has compiled what it is going to compile."""
    print_progress(f"warming up {broker.name}")
    for turn in range(size.warm_up_rounds):
        for value_bytes in (100, 1000, 10_000):
            topic = f"warm-up-{turn}-{value_bytes}"
            records = size.produced(value_bytes) // 2
            run_job(broker, "produce", topic=topic, records=records, size=value_bytes, keep=True)
            run_job(broker, "consume", topic=topic, records=records + 1, size=value_bytes, delete=True)
        for codec in CODECS:
            run_job(broker, "produce", topic=f"warm-up-{turn}-{codec}", records=10_000, size=1000, codec=codec)
        run_job(broker, "synchronous", topic=f"warm-up-{turn}-latency", records=2000, size=100)
        run_requests(broker, f"warm-up-{turn}-requests", list(KINDS), connections=64, seconds=1)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.broker", description="Measure Ottla beside Apache Kafka.")
    add_options(parser, [START, *(workload.name for workload in WORKLOADS)], "about two minutes")
    add_peer_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    size: Size = QUICK if options.quick else FULL
    if options.pairs:
        size = size.with_pairs(options.pairs)
    workloads = [workload for workload in WORKLOADS if is_chosen(workload.name, options.rows)]
    began, others, contest = time.monotonic(), OtherPrograms(), choose_contest(options)
    comparison = Comparison(size, contest, None if options.pairs else PATIENCE_SECONDS)
    try:
        if is_chosen(START, options.rows):
            comparison.measure_start()
        if workloads:
            comparison.measure_loads(workloads)
    except Unavailable as reason:
        print(f"Apache Kafka cannot run here: {reason}. --alone measures Ottla without it.", file=sys.stderr)
        return 1
    conditions = describe_run(size.pairs, began, others)
    details = {"size": asdict(size), "settings_of_both": SETTINGS, "share_of_other_programs": others.share()}
    return publish(comparison.results, options, contest, conditions, details)


if __name__ == "__main__":
    raise SystemExit(main())
