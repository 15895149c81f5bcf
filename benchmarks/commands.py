"""How long each command of `ottla` takes to answer: python -m benchmarks.commands [--topics 10000] [--times 3]

A command is a process of its own, so most of its time is Python's start and its imports. The table has the processor
time (user and system) and the elapsed time of the fastest of several runs: `--help` of every command, and the commands
that people use all day, against a broker with many topics. The promise is 0.3 s on a quiet machine; the last column
says how the processor time relates to it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import ottla.testing
from benchmarks.peers.ottla_broker import build_environment
from benchmarks.report import describe_machine
from ottla.cli import COMMANDS
from ottla.client.client import Client

PROMISE_S = 0.3
CREATED_AT_ONCE = 500
CREATION_MS = 600_000
"""How long a busy machine may take to create as many topics. A request that is sent twice finds the topics there."""

WITH_A_BROKER = (
    ("topic", "list"),
    ("topic", "describe", "topic-00000"),
    ("topic", "create", "topic-00000", "--if-not-exists"),
    ("consume", "topic-00000"),
    ("produce", "topic-00000", "/dev/null", "--acks", "1"),
    ("group", "list"),
    ("group", "describe", "readers"),
    ("config", "get", "topic", "topic-00000"),
    ("config", "list", "topic"),
    ("txn", "list"),
    ("user", "list"),
    ("quota", "list"),
    ("cluster", "info"),
    ("cluster", "brokers"),
    ("sink", "list"),
    ("stream", "list"),
    ("doctor",),
    ("kafka", "topics", "--list"),
    ("__complete", "ottla topic describe topic-0000"),
    ("consume", "topic-0000"),
)


class Timing(NamedTuple):
    command: str
    status: int
    processor_s: float
    elapsed_s: float


def measure(words: Sequence[str], times: int, environment: dict[str, str]) -> Timing:
    """The run that took the least processor time, its child processes included."""
    runs = []
    for _ in range(times):
        began_s = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "ottla", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        elapsed_s = time.perf_counter() - began_s
        runs.append(Timing(" ".join(words), child.returncode, used.ru_utime + used.ru_stime, elapsed_s))
    return min(runs, key=lambda run: run.processor_s)


def list_commands(topics: int) -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        yield name, "--help"
    if topics:
        yield from WITH_A_BROKER


def create_topics(bootstrap: str, topics: int) -> None:
    from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

    client = Client({"bootstrap.servers": bootstrap, "request.timeout.ms": str(CREATION_MS)})
    names = [f"topic-{number:05d}" for number in range(topics)]
    for first in range(0, topics, CREATED_AT_ONCE):
        wanted = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in names[first : first + CREATED_AT_ONCE]
        ]
        answer = client.ask_any(CreateTopicsRequest(topics=wanted, timeout_ms=CREATION_MS))
        if failed := [topic for topic in answer.topics if topic.error_code]:
            raise SystemExit(f"topic {failed[0].name} is not created: {failed[0].error_message}")
    client.close()


def measure_all(topics: int, times: int) -> Iterator[Timing]:
    with tempfile.TemporaryDirectory() as home, ottla.testing.broker(process=True) as broker:
        create_topics(broker.bootstrap, topics)
        environment = build_environment() | {
            "XDG_CONFIG_HOME": home,
            "XDG_DATA_HOME": home,
            "OTTLA_BOOTSTRAP": broker.bootstrap,
            "OTTLA_COMPLETION_SECONDS": "60",
        }
        measure(("group", "reset", "readers", "--topic", "topic-00000", "--to-earliest"), 1, environment)
        for words in list_commands(topics):
            yield measure(words, times, environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000, help="topics of the broker (10,000)")
    parser.add_argument("--times", type=int, default=3, help="runs of each command (3)")
    options = parser.parse_args()
    print(", ".join(f"{name}: {value}" for name, value in describe_machine().items()))
    print("\n| command | processor ms | elapsed ms | of 300 ms |\n|---|---|---|---|")
    for timing in measure_all(options.topics, options.times):
        share = f"{timing.processor_s / PROMISE_S:.0%}"
        print(
            f"| `{timing.command}` | {timing.processor_s * 1000:.0f} | {timing.elapsed_s * 1000:.0f} | {share} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
