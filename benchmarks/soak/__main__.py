"""`python -m benchmarks.soak --minutes 60`: start a broker, let clients come and go, and watch its memory.

The broker is `ottla up` in a directory of its own with little retention, so that the data stops growing soon. Its
memory, descriptors and threads are read from /proc. The exit status is 1 if they grow, 0 if they level off. Ctrl-C ends
the run early, with the verdict on what was seen until then, and status 130.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.soak.clients import TOPICS, Crowd, Load
from benchmarks.soak.samples import MEGABYTE, Sample, judge, sentence, table
from ottla.testing.topics import create_topic

SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "log.retention.bytes": str(3 << 20),
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.segment.bytes": str(1 << 20),
    "producer.id.expiration.ms": "60000",
    "producer.id.expiration.check.interval.ms": "10000",
}
"""Little data, and producers that are forgotten a minute after they left. By default a partition remembers them for a
day, up to 5,000 of them, so within an hour they would only become more: --set producer.id.expiration.ms=86400000."""
PARTITIONS = 2
SAMPLES_MIN = 8
INTERRUPTED = 130


def main() -> int:
    options = parse(sys.argv[1:])
    load = Load(options.producers, options.consumers, options.stay, options.rate)
    samples: list[Sample] = []
    status = 0
    settings = SETTINGS | dict(each.split("=", 1) for each in options.set)
    with OttlaBroker(settings, interpreter=tuple(options.interpreter)) as broker:
        for topic in TOPICS:
            create_topic("127.0.0.1", broker.port, topic, PARTITIONS, {})
        crowd = Crowd(broker.bootstrap, load, options.seed)
        try:
            for sample in watch(broker, crowd, options.minutes * 60, options.every):
                samples.append(sample)
                show(sample, crowd)
        except KeyboardInterrupt:
            status = INTERRUPTED
        finally:
            crowd.stop()
    print(flush=True)
    if len(samples) < SAMPLES_MIN:
        print("too short for a verdict")
        return status or 1
    print("\n".join(table(samples)))
    verdict = judge(samples, options.limit * 1024)
    print(sentence(verdict))
    return status or int(verdict.grows)


def watch(broker: OttlaBroker, crowd: Crowd, seconds: float, every_s: float) -> Iterator[Sample]:
    process = psutil.Process(broker.process_id)
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        if not crowd.is_running():
            raise SystemExit("the clients ended by themselves")
        yield Sample(
            passed,
            process.memory_info().rss,
            process.num_fds(),
            process.num_threads(),
            crowd.connects,
            size_of(broker.directory / "data"),
        )
        time.sleep(every_s)


def size_of(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # deleted meanwhile
    return total


def show(sample: Sample, crowd: Crowd) -> None:
    line = (
        f"{sample.seconds / 60:6.1f} min  {sample.resident_bytes / MEGABYTE:7.1f} MB  {sample.descriptors} descriptors"
        f"  {sample.threads} threads  {sample.connects} clients so far, {crowd.errors} with errors"
        f"  {sample.data_bytes / MEGABYTE:.1f} MB of data"
    )
    print(f"\r{line:<120}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=3, metavar="SECONDS", help="between two samples")
    parser.add_argument("--producers", type=int, default=20)
    parser.add_argument("--consumers", type=int, default=12)
    parser.add_argument(
        "--stay", type=float, nargs=2, default=(15, 20), metavar="SECONDS", help="how long a client stays"
    )
    parser.add_argument("--rate", type=float, default=50, help="records a second of each producer")
    parser.add_argument("--limit", type=float, default=100, metavar="KB", help="growth a minute that is accepted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the broker")
    parser.add_argument("--interpreter", nargs="*", default=[], help="words before -m ottla, for a profiler")
    options = parser.parse_args(words)
    options.stay = tuple(options.stay)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
