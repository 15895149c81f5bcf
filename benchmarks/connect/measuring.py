"""What the workloads share: the bench, and how a connector that moves rows is measured."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import side_by_side
from benchmarks.connect.workers import RunningWorker
from benchmarks.loads.topics import Mismatch
from benchmarks.report import Row
from benchmarks.side_by_side import Size
from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.topic_partition import TopicPartition


@dataclass(frozen=True)
class Bench:
    bootstrap: str
    size: Size


Workload = side_by_side.Workload[Bench]


def measure_rows(worker: RunningWorker, title: str, rows: int, count: Callable[[], int]) -> dict[Row, float]:
    """From the moment at which a third of the rows is done until all are.

    Rows come in batches of up to 100,000. If less than a third is left by then, the time would be that of a batch.
    """
    worker.wait_until(lambda: count() >= rows // 3, "a third of the rows is not done")
    first, began, before = count(), time.perf_counter(), worker.usage.cpu_seconds
    if rows - first < rows // 3:
        raise Mismatch(f"{worker.name}: {first} of {rows} rows are done at once; it takes more (--input) to measure")
    worker.wait_until(lambda: count() >= rows, "the rows are not done")
    seconds, cpu_seconds = time.perf_counter() - began, worker.usage.cpu_seconds - before
    return {
        Row(title, "k rows/s", more_is_better=True): (rows - first) / seconds / 1000,
        Row(f"{title}: CPU", "s/M rows", more_is_better=False): cpu_seconds / (rows - first) * 1e6,
    }


class TopicEnds:
    """Counts the offsets of topics, with a control record for each transaction of Ottla."""

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int = 1) -> None:
        self._client = Client({"bootstrap.servers": bootstrap})
        self._wanted = {TopicPartition(topic, each): LATEST for topic in topics for each in range(partitions)}

    def __enter__(self) -> "TopicEnds":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def count(self) -> int:
        return sum(each.offset for each in self._client.list_offsets(self._wanted, READ_COMMITTED).values())
