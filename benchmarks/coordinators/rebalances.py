"""The rows of both benchmarks of rebalances."""

import statistics
import time
from collections.abc import Callable

from benchmarks.coordinators.size import Size
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.report import Row


def make_values(
    broker: BrokerProcess, protocol: str, size: Size, rebalance_once: Callable[[], None]
) -> dict[Row, float]:
    """Rebalance several times, after one time that does not count: the median duration and the broker's mean CPU."""
    rebalance_once()
    seconds = []
    before = broker.usage().cpu_seconds
    for _ in range(size.rebalances):
        began = time.perf_counter()
        rebalance_once()
        seconds.append(time.perf_counter() - began)
    cpu_seconds = broker.usage().cpu_seconds - before
    title = f"rebalance of a {protocol} group, {size.members:,} members"
    return {
        Row(title, "s", more_is_better=False): statistics.median(seconds),
        Row(f"{title}: broker CPU", "s", more_is_better=False): cpu_seconds / size.rebalances,
    }
