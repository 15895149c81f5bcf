"""`python -m benchmarks.soak --minutes 60`: start a broker, let clients come and go, and watch its memory.

The broker is `ottla up` in a directory of its own. Its settings are the defaults, except that it keeps little data, so
that the data stops growing soon. First the broker is made to load the machine code for record checks, and every
partition is filled with as many idempotent producers as it remembers. Then the clients start.

The broker's memory, descriptors and threads are read from /proc. The exit status is 0 if they level off, 1 if they
grow, and 2 if the run was too short for a verdict. Ctrl-C ends the run early, with the verdict on what was seen until
then if that was long enough, and status 130.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.soak.clients import Crowd, Load
from benchmarks.soak.samples import (
    MEGABYTE,
    MINUTES_MIN,
    Sample,
    explain_too_short,
    is_long_enough,
    judge,
    sentence,
    table,
)
from benchmarks.soak.short_lived import FILL_COUNT, fill_producer_states, load_machine_code
from benchmarks.soak.topics import PARTITIONS, TOPICS
from ottla.testing.topics import create_topic

SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "log.retention.bytes": str(3 << 20),
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.segment.bytes": str(1 << 20),
}
"""Little data; all other settings are the broker's defaults."""
NO_VERDICT = 2
INTERRUPTED = 130


def main() -> int:
    options = parse(sys.argv[1:])
    load = Load(options.producers, options.consumers, options.stay, options.rate, options.short_lived)
    if options.minutes < MINUTES_MIN:
        print(f"{options.minutes:g} minutes are too short for a verdict, which needs {MINUTES_MIN}", flush=True)
    samples: list[Sample] = []
    status = 0
    settings = SETTINGS | dict(each.split("=", 1) for each in options.set)
    with OttlaBroker(settings, interpreter=tuple(options.interpreter)) as broker:
        for topic in TOPICS:
            create_topic({"bootstrap.servers": broker.bootstrap}, topic, PARTITIONS, {})
        try:
            load_machine_code(broker.bootstrap)
            if options.short_lived:
                fill(broker.bootstrap)
            with Crowd(broker.bootstrap, load, options.seed) as crowd:
                for sample in watch(broker, crowd, options.minutes * 60, options.every):
                    samples.append(sample)
                    show(sample, crowd)
        except KeyboardInterrupt:
            status = INTERRUPTED
    print(flush=True)
    if samples:
        print("\n".join(table(samples)))
    if not is_long_enough(samples):
        print(explain_too_short(samples))
        return status or NO_VERDICT
    verdict = judge(samples, options.limit * 1024)
    print(sentence(verdict))
    return status or int(verdict.grows)


def fill(bootstrap: str) -> None:
    """Bring every partition to the number of producers that it remembers at most."""
    began = time.monotonic()

    def report(sent: int) -> None:
        if sent % 1000 == 0 or sent == FILL_COUNT:
            seconds = time.monotonic() - began
            print(
                f"{sent} of {FILL_COUNT} short-lived producers have written to every partition, {seconds:.0f} s",
                flush=True,
            )

    fill_producer_states(bootstrap, report)


def watch(broker: OttlaBroker, crowd: Crowd, seconds: float, every_s: float) -> Iterator[Sample]:
    """A sample at the start, one every `every_s`, and one at the end."""
    process = psutil.Process(broker.process_id)
    began = time.monotonic()
    while True:
        passed = time.monotonic() - began
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
        if passed >= seconds:
            return
        time.sleep(min(every_s, seconds - passed))


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
    parser.add_argument(
        "--short-lived", type=float, default=10, metavar="RATE", help="producers a second that send once; 0 for none"
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
