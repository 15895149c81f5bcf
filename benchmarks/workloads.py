"""What is measured: each workload is one job of the load generator and the table rows that come out of it.

A workload runs against one broker and returns a value per row. Values of the two brokers are only ever compared within
a pair of runs that follow each other.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from benchmarks.child import BrokerChild

ROOT = Path(__file__).resolve().parent.parent
JOB_SECONDS = 180
GIGABYTE = 1e9
topic_numbers = count()

Values = dict[str, float]


class JobFailure(Exception):
    """The load generator failed: records missing, refused or late. Its message is what it printed."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    unit: str
    more_is_better: bool


@dataclass(frozen=True)
class Size:
    """How long a whole run takes: about a minute, or about five."""

    pairs: int
    produced_bytes: int
    consumed_bytes: int
    most_records: int
    latency_records: int
    request_seconds: float
    starts: int
    warm_up_rounds: int

    def with_pairs(self, pairs: int) -> "Size":
        return replace(self, pairs=pairs, starts=pairs)

    def produced(self, value_bytes: int) -> int:
        return min(self.produced_bytes // value_bytes, self.most_records)

    def consumed(self, value_bytes: int) -> int:
        return min(self.consumed_bytes // value_bytes, self.most_records)


FULL = Size(
    pairs=5, produced_bytes=400_000_000, consumed_bytes=1_000_000_000, most_records=1_500_000, latency_records=4000,
    request_seconds=1.5, starts=3, warm_up_rounds=3,
)
QUICK = Size(
    pairs=1, produced_bytes=200_000_000, consumed_bytes=400_000_000, most_records=500_000, latency_records=1500,
    request_seconds=1.0, starts=1, warm_up_rounds=1,
)


@dataclass(frozen=True)
class Workload:
    name: str
    rows: tuple[Row, ...]
    measure: Callable[[BrokerChild, Size], Values]
    prepare: Callable[[BrokerChild, Size], None] = field(default=lambda broker, size: None)


def run_job(broker: BrokerChild, job: str, **details: object) -> tuple[Values, float]:
    """What the load generator measured, and the CPU seconds the broker spent meanwhile."""
    description = json.dumps({"job": job, "bootstrap": broker.bootstrap} | details)
    before = broker.usage().cpu_seconds
    command = [sys.executable, "-m", "benchmarks.load", description]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=JOB_SECONDS)
    if done.returncode != 0:
        raise JobFailure(f"{broker.name}, {description}:\n{done.stderr.strip()}")
    result: Values = json.loads(done.stdout)
    return result, broker.usage().cpu_seconds - before


def human(value_bytes: int) -> str:
    return f"{value_bytes} B" if value_bytes < 1000 else f"{value_bytes // 1000} KB"


def produce_workload(value_bytes: int, acks: str) -> Workload:
    name = f"produce {human(value_bytes)}, acks {acks}"
    speed = Row(name, "MB/s", more_is_better=True)
    cost = Row(f"{name}: broker CPU", "s/GB", more_is_better=False)

    def measure(broker: BrokerChild, size: Size) -> Values:
        records = size.produced(value_bytes)
        topic = f"produce-{next(topic_numbers)}"
        result, cpu_seconds = run_job(broker, "produce", topic=topic, records=records, size=value_bytes, acks=acks)
        return throughput(result, cpu_seconds, speed, cost)

    return Workload(f"produce-{value_bytes}-{acks}", (speed, cost), measure)


def consume_workload(value_bytes: int) -> Workload:
    name = f"consume {human(value_bytes)}"
    speed = Row(name, "MB/s", more_is_better=True)
    cost = Row(f"{name}: broker CPU", "s/GB", more_is_better=False)
    topic = f"consume-{value_bytes}"

    def prepare(broker: BrokerChild, size: Size) -> None:
        run_job(broker, "produce", topic=topic, records=size.consumed(value_bytes), size=value_bytes, keep=True)

    def measure(broker: BrokerChild, size: Size) -> Values:
        # One record more than was timed: the producer sends one to open its connection.
        records = size.consumed(value_bytes) + 1
        result, cpu_seconds = run_job(broker, "consume", topic=topic, records=records, size=value_bytes)
        return throughput(result, cpu_seconds, speed, cost)

    return Workload(f"consume-{value_bytes}", (speed, cost), measure, prepare)


def throughput(result: Values, cpu_seconds: float, speed: Row, cost: Row) -> Values:
    return {
        speed.name: result["bytes"] / 1e6 / result["seconds"],
        cost.name: cpu_seconds / (result["bytes"] / GIGABYTE),
    }


def latency_workload() -> Workload:
    middle = Row("synchronous produce 100 B, p50", "ms", more_is_better=False)
    slow = Row("synchronous produce 100 B, p99", "ms", more_is_better=False)

    def measure(broker: BrokerChild, size: Size) -> Values:
        topic = f"latency-{next(topic_numbers)}"
        result, _ = run_job(broker, "latency", topic=topic, records=size.latency_records, size=100)
        return {middle.name: result["p50_ms"], slow.name: result["p99_ms"]}

    return Workload("latency", (middle, slow), measure)


def request_workload(connections: int) -> Workload:
    name = f"small requests, {connections} connection{'s' if connections > 1 else ''}"
    rate = Row(name, "1/s", more_is_better=True)
    cost = Row(f"{name}: broker CPU", "us each", more_is_better=False)

    def measure(broker: BrokerChild, size: Size) -> Values:
        topic = f"requests-{next(topic_numbers)}"
        result, cpu_seconds = run_job(
            broker, "requests", topic=topic, connections=connections, seconds=size.request_seconds
        )
        answered = result["requests"]
        return {rate.name: answered / result["seconds"], cost.name: 1e6 * cpu_seconds / answered}

    return Workload(f"requests-{connections}", (rate, cost), measure)


WORKLOADS: tuple[Workload, ...] = (
    *(produce_workload(value_bytes, acks) for acks in ("1", "all") for value_bytes in (100, 1000, 10_000)),
    *(consume_workload(value_bytes) for value_bytes in (100, 1000, 10_000)),
    latency_workload(),
    request_workload(1),
    request_workload(64),
)

ACCEPTED = Row("start to first accepted connection", "s", more_is_better=False)
ANSWERED = Row("start to first answered request", "s", more_is_better=False)
IDLE_MEMORY = Row("memory when idle", "MB", more_is_better=False)
LOADED_MEMORY = Row("memory after all of the load", "MB", more_is_better=False)
