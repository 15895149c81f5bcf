"""Produce with acks=all and consume, over six partitions with three replicas."""

from itertools import count

from benchmarks.cluster.size import Size
from benchmarks.loads.jobs import run_job
from benchmarks.peers.cluster_processes import ClusterProcesses
from benchmarks.report import Row
from benchmarks.workloads import format_size, make_bulk_rows, make_bulk_values

SETTINGS: dict[str, str] = {"log.segment.delete.delay.ms": "1000"}
PARTITIONS = 6
VALUE_BYTES = (100, 1000, 10_000)
RATE = 1000
"""Records per second while acknowledgements are timed."""
topic_numbers = count()


def measure(cluster: ClusterProcesses, size: Size) -> dict[Row, float]:
    warm_up(cluster, size)
    values: dict[Row, float] = {}
    for value_bytes in VALUE_BYTES:
        values |= measure_size(cluster, size, value_bytes)
    values[Row("three brokers: memory after the load", "MB", more_is_better=False)] = (
        cluster.usage().resident_bytes / 1e6
    )
    return values


def measure_size(cluster: ClusterProcesses, size: Size, value_bytes: int) -> dict[Row, float]:
    shown = format_size(value_bytes)
    topic = f"bulk-{next(topic_numbers)}"
    records = size.count_records(value_bytes)
    details = {"topic": topic, "size": value_bytes, "partitions": PARTITIONS}
    produced, cpu_produced = run_job(cluster, "produce-replicated", records=records, keep=True, **details)
    consumed, cpu_consumed = run_job(cluster, "consume-replicated", records=records + PARTITIONS, **details)
    values: dict[Row, float] = {}
    for name, result, cpu_seconds in (
        (f"produce {shown}, acks all, 3 replicas", produced, cpu_produced),
        (f"consume {shown}, 3 brokers", consumed, cpu_consumed),
    ):
        rows = make_bulk_rows(name)
        found = make_bulk_values(rows, result["bytes"], result["bytes"] / result["seconds"], cpu_seconds)
        values |= {row: found[row.name] for row in rows}
    waits, _ = run_job(
        cluster,
        "acknowledgements",
        topic=f"{topic}-latency",
        rate=RATE,
        seconds=size.latency_seconds,
        size=value_bytes,
        partitions=PARTITIONS,
    )
    for key, quantile in (("p50_ms", "p50"), ("p99_ms", "p99")):
        name = f"acknowledged by all, {shown} at {RATE:,}/s, {quantile}"
        values[Row(name, "ms", more_is_better=False)] = waits[key]
    return values


def warm_up(cluster: ClusterProcesses, size: Size) -> None:
    """Send enough that the JVMs have compiled what they are going to compile."""
    for _ in range(size.warm_up_rounds):
        for value_bytes in VALUE_BYTES:
            topic = f"warm-up-{next(topic_numbers)}"
            details = {"topic": topic, "size": value_bytes, "partitions": PARTITIONS}
            records = size.count_records(value_bytes) // 2
            run_job(cluster, "produce-replicated", records=records, keep=True, **details)
            run_job(cluster, "consume-replicated", records=records + PARTITIONS, **details)
