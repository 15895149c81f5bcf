"""Transactions of one record for each of six partitions, which three brokers lead."""

from benchmarks.cluster.bulk import PARTITIONS
from benchmarks.cluster.size import Size
from benchmarks.loads.jobs import run_job
from benchmarks.peers.cluster_processes import ClusterProcesses
from benchmarks.report import Row

SETTINGS: dict[str, str] = {}
PRODUCERS = 4


def measure(cluster: ClusterProcesses, size: Size) -> dict[Row, float]:
    result, cpu_seconds = run_job(
        cluster,
        "transactions",
        topic="transactions",
        partitions=PARTITIONS,
        seconds=size.transaction_seconds,
        producers=PRODUCERS,
    )
    name = f"transactions over three brokers, {PRODUCERS} producers"
    return {
        Row(name, "1/s", more_is_better=True): result["per_second"],
        Row(f"{name}, p50", "ms", more_is_better=False): result["p50_ms"],
        Row(f"{name}, p99", "ms", more_is_better=False): result["p99_ms"],
        Row(f"{name}: broker CPU", "us each", more_is_better=False): 1e6 * cpu_seconds / result["transactions"],
    }
