"""The broker beside a real Apache Kafka: the same load generator, in one run, taking turns.

`python -m benchmarks.broker` takes about five minutes, `--quick` about one. Both brokers listen at the same time and
only one of them is under load; who goes first changes with every pair; the JVM is warmed up before anything is
measured. A ratio is the median of the ratios of the pairs, so that a slow minute of the machine hits both sides.
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

from benchmarks.apache_kafka import VERSION, ApacheKafka, Unavailable
from benchmarks.child import BrokerChild
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.report import Measurement, Neighbours, document, machine, table
from benchmarks.workloads import (
    ACCEPTED,
    ANSWERED,
    FULL,
    IDLE_MEMORY,
    LOADED_MEMORY,
    QUICK,
    WORKLOADS,
    JobFailure,
    Size,
    Values,
    Workload,
    run_job,
)

PEER = f"Apache Kafka {VERSION}"
IDLE_SECONDS = 2.0
START = "start"
SETTINGS = {"log.segment.delete.delay.ms": "1000"}  # otherwise deleted topics fill the page cache for a minute


class Comparison:
    """Takes turns between the two brokers and collects what each row gave. Without a peer, Ottla runs alone."""

    def __init__(self, size: Size, with_peer: bool) -> None:
        self.size = size
        self.measurements: dict[str, Measurement] = {}
        self._kinds: list[Callable[[], BrokerChild]] = [lambda: OttlaBroker(SETTINGS)]
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
                self._measure(workload, brokers)
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

    def _measure(self, workload: Workload, brokers: Sequence[BrokerChild]) -> None:
        for broker in brokers:
            workload.prepare(broker, self.size)
        for pair in range(self.size.pairs):
            for side in self._turns(pair):
                progress(f"{workload.name}, pair {pair + 1} of {self.size.pairs}, {brokers[side].name}")
                values: Values = workload.measure(brokers[side], self.size)
                for row in workload.rows:
                    self._measurement(row.name, Measurement(row), side).append(values[row.name])

    def _record_memory(self, side: int, broker: BrokerChild) -> None:
        resident = broker.usage().resident_bytes / 1e6
        self._measurement(LOADED_MEMORY.name, Measurement(LOADED_MEMORY), side).append(resident)

    def _measurement(self, name: str, fresh: Measurement, side: int) -> list[float]:
        measurement = self.measurements.setdefault(name, fresh)
        return measurement.peers if side else measurement.ours


def warm_up(broker: BrokerChild, size: Size) -> None:
    """Enough of every kind of request that the JVM has compiled what it will compile."""
    progress(f"warming up {broker.name}")
    for turn in range(size.warm_up_rounds):
        for value_bytes in (100, 1000, 10_000):
            topic = f"warm-up-{turn}-{value_bytes}"
            records = size.produced(value_bytes)
            run_job(broker, "produce", topic=topic, records=records, size=value_bytes, keep=True)
            run_job(broker, "consume", topic=topic, records=records + 1, size=value_bytes, delete=True)
        run_job(broker, "latency", topic=f"warm-up-{turn}-latency", records=2000, size=100)
        run_job(broker, "requests", topic=f"warm-up-{turn}-requests", connections=64, seconds=1)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.broker", description="Measure Ottla beside Apache Kafka.")
    names = ", ".join([START, *(workload.name for workload in WORKLOADS)])
    parser.add_argument("--quick", action="store_true", help="one pair of short runs: about a minute")
    parser.add_argument("--rows", default="*", help=f"comma-separated patterns of: {names}")
    parser.add_argument("--pairs", type=int, help="how many pairs of runs each row is the median of")
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
    failure = ""
    try:
        comparison.run(workloads, with_start=any(fnmatchcase(START, item) for item in patterns))
    except Unavailable as reason:
        print(f"Apache Kafka cannot be run here: {reason}. --alone measures Ottla without it.", file=sys.stderr)
        return 1
    except JobFailure as reason:  # what was measured until then took minutes: show it, and that it is not all
        failure = str(reason)
    measurements = list(comparison.measurements.values())
    conditions = {"size": asdict(size), "settings_of_both": SETTINGS, "share_of_other_programs": neighbours.share()}
    around = machine()
    print(table(measurements, PEER))
    print(
        f"\n{around['cores']} cores shared by broker and client, {around['memory_gb']} GB of memory, Python "
        f"{around['python']}, {around['client']}; {size.pairs} pair(s), {time.monotonic() - began:.0f} s in all. "
        f"Other programs took {conditions['share_of_other_programs']:.0%} of the machine meanwhile."
    )
    if chosen.json:
        chosen.json.write_text(json.dumps(document(measurements, PEER, conditions), indent=2) + "\n")
    if failure:
        print(f"\nThe run ended early, the table is not complete: {failure}", file=sys.stderr)
    return 1 if failure else 0


if __name__ == "__main__":
    raise SystemExit(main())
