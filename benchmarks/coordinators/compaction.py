"""Compaction: how fast a dirty topic gets clean, and what a producer notices of it.

Both brokers get the same topic: random keys, the same records, segments of 16 MB. The topic's dirty ratio holds
compaction back while the topic is filled. Then it is lowered, and the time runs until the broker writes to its
`cleaner-offset-checkpoint` how far it came; the start of Ottla's cleaner process is included. A small topic is
compacted before, to warm both brokers up. After that a producer sends one record at a time, first while the broker has
nothing else to do, then while it compacts a second topic.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from benchmarks.coordinators.failure import BenchmarkFailure
from benchmarks.coordinators.size import Size
from benchmarks.loads.bulk import build_producer_settings, flush
from benchmarks.loads.latency import compute_quantiles
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.report import Row

SETTINGS = {"log.cleaner.backoff.ms": "100"}
TOPIC = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "1"}
RATIO = "min.cleanable.dirty.ratio"
VALUE_BYTES = 100
PATIENCE_SECONDS = 600.0
CHUNK = 10_000


class DirtyTopic:
    """A topic full of records, none of them compacted. Its dirty ratio holds compaction back until
    `allow_compaction`."""

    def __init__(self, broker: BrokerProcess, name: str, megabytes: float) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._data = broker.output.parent / "data"
        self.name = name
        self._admin.create_topics([NewTopic(name, 1, 1, config=TOPIC)])[name].result(30)
        self.records = int(megabytes * 1e6 / (VALUE_BYTES + 24))
        fill(broker.bootstrap, name, self.records)
        self.bytes = sum(path.stat().st_size for path in self._segments()[:-1])

    def _segments(self) -> list[Path]:
        return sorted((self._data / f"{self.name}-0").glob("*.log"))

    def allow_compaction(self) -> None:
        change = ConfigEntry(RATIO, "0.01", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name, incremental_configs=[change])
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(30)

    @property
    def is_clean(self) -> bool:
        with contextlib.suppress(FileNotFoundError, ValueError):
            lines = (self._data / "cleaner-offset-checkpoint").read_text().splitlines()
            return any(line.startswith(f"{self.name} 0 ") and not line.endswith(" 0") for line in lines[2:])
        return False

    def measure_compaction(self) -> float:
        """Seconds until the broker notes in its checkpoint that the topic is compacted."""
        began = time.monotonic()
        self.allow_compaction()
        while not self.is_clean:
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise BenchmarkFailure(f"{self.name} is not compacted after {PATIENCE_SECONDS:g} s")
            time.sleep(0.002)
        return time.monotonic() - began


def fill(bootstrap: str, topic: str, records: int) -> None:
    """Send records with random keys, of which one in four is the last of its key."""
    random = Random(records)
    value = os.urandom(VALUE_BYTES // 2) * 2
    producer = Producer(build_producer_settings(bootstrap, "1", linger_ms=5))
    for sent in range(records):
        producer.produce(topic, value, key=b"key-%012d" % random.randrange(max(records // 4, 1)), partition=0)
        if sent % CHUNK == 0:
            flush(producer)
    flush(producer)


def measure_waits(bootstrap: str, topic: str, while_true: Callable[[], bool]) -> list[float]:
    """Send one record at a time while the condition holds. Returns the seconds until each was acknowledged."""
    settings = build_producer_settings(bootstrap, "1", linger_ms=0) | {"max.in.flight.requests.per.connection": 1}
    producer = Producer(settings)
    value = os.urandom(1000)
    waits = []
    while while_true():
        for _ in range(50):
            began = time.perf_counter()
            producer.produce(topic, value, partition=0)
            producer.flush()
            waits.append(time.perf_counter() - began)
    return waits


def measure(broker: BrokerProcess, size: Size) -> dict[Row, float]:
    DirtyTopic(broker, "warm-up", size.warm_up_megabytes).measure_compaction()
    table = DirtyTopic(broker, "table", size.compacted_megabytes)
    before = broker.usage().cpu_seconds
    seconds = table.measure_compaction()
    cpu_seconds = broker.usage().cpu_seconds - before
    quiet, busy = measure_latencies(broker, size)
    title = f"compaction of {size.compacted_megabytes:g} MB"
    return {
        Row(title, "MB/s", more_is_better=True): table.bytes / 1e6 / seconds,
        Row(f"{title}, records", "1/s", more_is_better=True): table.records / seconds,
        Row(f"{title}: broker CPU", "s", more_is_better=False): cpu_seconds,
        Row("synchronous produce, p99, no compaction", "ms", more_is_better=False): quiet,
        Row("synchronous produce, p99, during compaction", "ms", more_is_better=False): busy,
    }


def measure_latencies(broker: BrokerProcess, size: Size) -> tuple[float, float]:
    """The 99th percentile of a producer's waits, in milliseconds: without compaction, and while the broker compacts."""
    until = time.monotonic() + size.latency_seconds
    measure_waits(broker.bootstrap, "quiet", lambda: time.monotonic() < until - size.latency_seconds / 2)  # warm-up
    quiet = measure_waits(broker.bootstrap, "quiet", lambda: time.monotonic() < until)
    table = DirtyTopic(broker, "second", size.compacted_megabytes)
    table.allow_compaction()
    busy = measure_waits(broker.bootstrap, "busy", lambda: not table.is_clean)
    return compute_quantiles(quiet)["p99_ms"], compute_quantiles(busy)["p99_ms"]
