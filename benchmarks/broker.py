"""The broker beside a real Apache Kafka: the same load generators, in one run, taking turns.

`python -m benchmarks.broker` takes about ten minutes, `--quick` about two. Both brokers listen at the same time and
only one of them is under load; who goes first changes with every pair; the JVM is warmed up before anything is
measured. A ratio is the median of the ratios of the pairs, so that a slow minute of the machine hits both sides. A row
that fails is told at the end, and the others are measured all the same.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.loads.jobs import JobFailure, Values, run_job
from benchmarks.loads.small_requests import KINDS
from benchmarks.peers.apache_kafka import VERSION, ApacheKafka, Unavailable
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.report import Measurement, Neighbours, document, inserted, machine, table, wrapped
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

PEER = f"Apache Kafka {VERSION}"
IDLE_SECONDS = 2.0
PATIENCE_SECONDS = 600
"""Rows that come later are measured once, so that a run on a slow machine ends before long as well."""
START = "start"
SETTINGS = {"log.segment.delete.delay.ms": "1000"}  # otherwise deleted topics fill the page cache for a minute


class Comparison:
    """Takes turns between the two brokers and collects what each row gave. Without a peer, Ottla runs alone."""

    def __init__(self, size: Size, with_peer: bool) -> None:
        self.size = size
        self.measurements: dict[str, Measurement] = {}
        self.failures: list[str] = []
        self._patient_until = time.monotonic() + PATIENCE_SECONDS
        self._kinds: list[Callable[[], BrokerProcess]] = [lambda: OttlaBroker(SETTINGS)]
        if with_peer:
            self._kinds.append(lambda: ApacheKafka(settings=SETTINGS))

    def run(self, workloads: Sequence[Workload], with_start: bool) -> None:
        if with_start:
            for kind in self._kinds:  # not measured: the first start reads programs from disk and compiles them
                with kind():
                    pass
            for pair in range(self.size.starts):
                for side in self._turns(pair):
                    self._measure_start(side)
        if not workloads:
            return
        with contextlib.ExitStack() as stack:
            brokers = [stack.enter_context(kind()) for kind in self._kinds]
            for broker in brokers:
                warm_up(broker, self.size)
            for workload in workloads:
                try:
                    self._measure(workload, brokers)
                except (JobFailure, Unavailable) as reason:
                    # The other rows take minutes, and say what they say without this one.
                    self.failures.append(f"{workload.name}: {reason}")
            for side, broker in enumerate(brokers):
                self._record_memory(side, broker)

    def _turns(self, pair: int) -> list[int]:
        sides = list(range(len(self._kinds)))
        return sides if pair % 2 == 0 else sides[::-1]

    def _measure_start(self, side: int) -> None:
        progress(f"start, {('Ottla', PEER)[side]}")
        broker = self._kinds[side]()
        try:
            times = broker.start()
            time.sleep(IDLE_SECONDS)
            resident = broker.usage().resident_bytes / 1e6
        finally:
            broker.stop()
        values = {ACCEPTED.name: times.accepted, ANSWERED.name: times.answered, IDLE_MEMORY.name: resident}
        for row in (ACCEPTED, ANSWERED, IDLE_MEMORY):
            self._measurement(row.name, Measurement(row), side).append(values[row.name])

    def _measure(self, workload: Workload, brokers: Sequence[BrokerProcess]) -> None:
        for broker in brokers:
            workload.prepare(broker, self.size)
        for pair in range(self.size.pairs):
            if pair and time.monotonic() > self._patient_until:
                return  # the table shows it: a row of one pair has no brackets
            for side in self._turns(pair):
                progress(f"{workload.name}, pair {pair + 1} of {self.size.pairs}, {brokers[side].name}")
                values: Values = workload.measure(brokers[side], self.size)
                for row in workload.rows:
                    self._measurement(row.name, Measurement(row), side).append(values[row.name])

    def _record_memory(self, side: int, broker: BrokerProcess) -> None:
        resident = broker.usage().resident_bytes / 1e6
        self._measurement(LOADED_MEMORY.name, Measurement(LOADED_MEMORY), side).append(resident)

    def _measurement(self, name: str, fresh: Measurement, side: int) -> list[float]:
        measurement = self.measurements.setdefault(name, fresh)
        return measurement.peers if side else measurement.ours


def warm_up(broker: BrokerProcess, size: Size) -> None:
    """Enough of every kind of request that the JVM has compiled what it will compile."""
    progress(f"warming up {broker.name}")
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


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.broker", description="Measure Ottla beside Apache Kafka.")
    names = ", ".join([START, *(workload.name for workload in WORKLOADS)])
    parser.add_argument("--quick", action="store_true", help="one pair of short runs: about two minutes")
    parser.add_argument("--rows", default="*", help=f"comma-separated patterns of: {names}")
    parser.add_argument("--pairs", type=int, help="how many pairs of runs each row is the median of")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table and its conditions here as well")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single value here as well")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    size: Size = QUICK if chosen.quick else FULL
    if chosen.pairs:
        size = size.with_pairs(chosen.pairs)
    patterns = [pattern.strip() for pattern in chosen.rows.split(",")]
    workloads = [workload for workload in WORKLOADS if any(fnmatchcase(workload.name, item) for item in patterns)]
    began, neighbours = time.monotonic(), Neighbours()
    comparison = Comparison(size, with_peer=not chosen.alone)
    try:
        comparison.run(workloads, with_start=any(fnmatchcase(START, item) for item in patterns))
    except Unavailable as reason:
        print(f"Apache Kafka cannot be run here: {reason}. --alone measures Ottla without it.", file=sys.stderr)
        return 1
    measurements = list(comparison.measurements.values())
    share = neighbours.share()
    text = f"{table(measurements, PEER)}\n\n{wrapped(conditions(size, time.monotonic() - began, share))}"
    print(text)
    if chosen.markdown:
        page = chosen.markdown.read_text() if chosen.markdown.exists() else ""
        chosen.markdown.write_text(inserted(page, text))
    if chosen.json:
        around = {"size": asdict(size), "settings_of_both": SETTINGS, "share_of_other_programs": share}
        chosen.json.write_text(json.dumps(document(measurements, PEER, around), indent=2) + "\n")
    for failure in comparison.failures:
        print(f"\nThe table is not complete: {failure}", file=sys.stderr)
    return 1 if comparison.failures else 0


def conditions(size: Size, seconds: float, share: float) -> str:
    """Under which the table came to be, in a few sentences."""
    around = machine()
    return (
        f"{around['cores']} cores shared by broker and client, {around['memory_gb']} GB of memory, Python "
        f"{around['python']}, {around['client']}, {around['java']}; {size.pairs} pair(s), {seconds:.0f} s in all. "
        f"Other programs took {share:.0%} of the machine meanwhile."
    )


if __name__ == "__main__":
    raise SystemExit(main())
