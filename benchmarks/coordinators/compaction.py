"""Compaction beside Apache Kafka's: how fast a dirty topic gets clean, and what clients notice of it.

    python -m benchmarks.coordinators.compaction --megabytes 256

Both brokers get the same topic: random keys, the same records, segments of 16 MB. Compaction is held back by the
topic's dirty ratio while the topic is filled, then let go; the time runs until the broker notes in its
`cleaner-offset-checkpoint` how far it came, the start of Ottla's compacting process included. A small topic is
compacted before, so that neither is cold. Then a producer sends one record after the other, first with nothing else to
do, then while the broker compacts a second topic.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from benchmarks.loads.bulk import flush, producer_settings
from benchmarks.loads.latency import quantiles
from benchmarks.peers.apache_kafka import ApacheKafka, Unavailable
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.report import number

BROKER = {"log.cleaner.backoff.ms": "100"}
TOPIC = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "1"}
RATIO = "min.cleanable.dirty.ratio"
WARM_UP_MEGABYTES = 40
PATIENCE_SECONDS = 600.0
CHUNK = 10_000


class TooSlow(Exception):
    """Compaction did not come to an end."""


class Dirty:
    """A topic that waits for its compaction."""

    def __init__(self, broker: BrokerProcess, data: Path, name: str, megabytes: float, size: int, codec: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._data = data
        self.name = name
        self._admin.create_topics([NewTopic(name, 1, 1, config=TOPIC)])[name].result(30)
        self.records = int(megabytes * 1e6 / (size + 24))
        fill(broker.bootstrap, name, self.records, size, codec)
        self.bytes = sum(path.stat().st_size for path in self._segments()[:-1])

    def _segments(self) -> list[Path]:
        return sorted((self._data / f"{self.name}-0").glob("*.log"))

    def let_go(self) -> None:
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

    def seconds_until_clean(self) -> float:
        began = time.monotonic()
        self.let_go()
        while not self.is_clean:
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise TooSlow(f"{self.name} is not compacted after {PATIENCE_SECONDS:g} s")
            time.sleep(0.002)
        return time.monotonic() - began


def fill(bootstrap: str, topic: str, records: int, size: int, codec: str) -> None:
    """One in four records is the last of its key."""
    random = Random(records)
    value = os.urandom(size // 2) * 2
    producer = Producer(producer_settings(bootstrap, "1", linger_ms=5) | {"compression.type": codec})
    for sent in range(records):
        producer.produce(topic, value, key=b"key-%012d" % random.randrange(max(records // 4, 1)), partition=0)
        if sent % CHUNK == 0:
            flush(producer)
    flush(producer)


def waits(bootstrap: str, topic: str, while_true: Callable[[], bool]) -> Iterator[float]:
    """Send a record, wait for its acknowledgement, send the next."""
    settings = producer_settings(bootstrap, "1", linger_ms=0) | {"max.in.flight.requests.per.connection": 1}
    producer = Producer(settings)
    value = os.urandom(1000)
    while while_true():
        for _ in range(50):
            began = time.perf_counter()
            producer.produce(topic, value, partition=0)
            producer.flush()
            yield time.perf_counter() - began


def measure(broker: BrokerProcess, data: Path, options: argparse.Namespace) -> dict[str, float]:
    Dirty(broker, data, "warm", WARM_UP_MEGABYTES, options.value, options.codec).seconds_until_clean()
    before = broker.usage().cpu_seconds
    table = Dirty(broker, data, "table", options.megabytes, options.value, options.codec)
    seconds = table.seconds_until_clean()
    found = {
        "MB/s": table.bytes / 1e6 / seconds,
        "records/s": table.records / seconds,
        "seconds": seconds,
        "MB after": sum(path.stat().st_size for path in (data / "table-0").glob("*.log")) / 1e6,
        "cpu_seconds": broker.usage().cpu_seconds - before,
    }
    if options.latency_seconds:
        found |= latencies(broker, data, options)
    return found


def latencies(broker: BrokerProcess, data: Path, options: argparse.Namespace) -> dict[str, float]:
    until = time.monotonic() + options.latency_seconds
    list(waits(broker.bootstrap, "quiet", lambda: time.monotonic() < until - options.latency_seconds / 2))
    quiet = quantiles(list(waits(broker.bootstrap, "quiet", lambda: time.monotonic() < until)))
    table = Dirty(broker, data, "second", options.megabytes, options.value, options.codec)
    table.let_go()
    busy = quantiles(list(waits(broker.bootstrap, "busy", lambda: not table.is_clean)))
    return {
        "p99 ms": quiet["p99_ms"],
        "p99 ms while compacting": busy["p99_ms"],
        "p99 growth": busy["p99_ms"] / quiet["p99_ms"],
        "p50 ms": quiet["p50_ms"],
        "p50 ms while compacting": busy["p50_ms"],
    }


def run(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    with OttlaBroker(settings=BROKER) as ottla:
        results[ottla.name] = measure(ottla, ottla.directory / "data", options)
    if not options.alone:
        try:
            with ApacheKafka(settings=BROKER) as kafka:
                results[kafka.name] = measure(kafka, kafka.directory / "data", options)
        except Unavailable as reason:
            print(f"without Apache Kafka: {reason}", file=sys.stderr)
    return results


def show(results: Mapping[str, Mapping[str, float]]) -> None:
    names = list(results)
    print(f"{'':28}" + "".join(f"{name:>22}" for name in names))
    for row in results[names[0]]:
        print(f"{row:28}" + "".join(f"{number(results[name][row]):>22}" for name in names))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=float, default=256, help="size of the topic that is compacted")
    parser.add_argument("--value", type=int, default=100, help="bytes of a value")
    parser.add_argument("--codec", default="none", help="none, gzip, snappy, lz4 or zstd")
    parser.add_argument("--latency-seconds", type=float, default=10, help="0: do not measure latency")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    options = parser.parse_args(arguments)
    results = run(options)
    show(results)
    if options.json:
        document: dict[str, Any] = {"options": {**vars(options), "json": str(options.json)}, "results": results}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
