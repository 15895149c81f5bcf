"""How long a broker with many partitions takes to start and to stop: python -m benchmarks.open_partitions --count 10000

Every start is a new process. The first one creates the partitions and writes to them; they are then opened twice after
a clean stop, and once after kill -9. A row has the seconds until the broker answers, its CPU seconds until then, the
seconds that it took to stop, and its memory in between, in megabytes.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from functools import partial

import psutil

from ottla.broker.broker import Broker
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig
from ottla.records.batch import check, encode

TOPIC_PARTITIONS = 1000
RECORDS = 3
STARTS = (
    ("created and filled", "fill"),
    ("after a clean stop", "stop"),
    ("after a clean stop", "kill"),
    ("after kill -9", "stop"),
)
"""What is measured in each start, and what the process does then."""
DEADLINE_S = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="how many partitions, in topics of a thousand")
    parser.add_argument("--directory", help="data directory; a temporary one if it is not given")
    parser.add_argument("--task", choices=("fill", "stop", "kill"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        asyncio.run(run_broker(options.count, options.directory, options.task))
        return
    print(f"{options.count} partitions: seconds to start, CPU seconds of the start, seconds to stop, MB of memory")
    with tempfile.TemporaryDirectory(prefix="ottla-partitions-") as temporary:
        for title, task in STARTS:
            directory = options.directory or temporary
            arguments = ["--count", str(options.count), "--directory", directory, "--task", task]
            outcome = subprocess.run(
                [sys.executable, "-m", "benchmarks.open_partitions", *arguments], capture_output=True, text=True
            )
            if outcome.returncode:
                sys.exit(outcome.stderr)
            print(f"  {title:20} {outcome.stdout.strip()}", flush=True)


async def run_broker(count: int, directory: str, task: str) -> None:
    """Start a broker, do the task, and print one line of the table."""
    broker = Broker(BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0"}), directory)
    began, worked = time.perf_counter(), time.process_time()
    await broker.start()
    start = f"{time.perf_counter() - began:8.2f} {time.process_time() - worked:8.2f}"
    if task == "fill":
        await fill(broker, count)
    assert sum(1 for _ in broker.node.replicas) == count
    memory = psutil.Process().memory_info().rss / 1e6
    if task == "kill":
        print(f"{start} {'-':>8} {memory:8.0f}", flush=True)
        os._exit(0)
    began = time.perf_counter()
    await broker.stop(DEADLINE_S)
    print(f"{start} {time.perf_counter() - began:8.2f} {memory:8.0f}")


async def fill(broker: Broker, count: int) -> None:
    node = broker.node
    for number in range(0, count, TOPIC_PARTITIONS):
        topic = NewTopic(f"topic-{number}", min(TOPIC_PARTITIONS, count - number))
        await node.metadata.change(partial(create_topic, topic=topic, config=node.config, random=node.random))
    for partition in node.replicas:
        for _ in range(RECORDS):
            batch = bytearray(encode([(None, bytes(100), (), node.clock.now_ms())]))
            partition.append(memoryview(batch), check(batch), node.clock.now_ms(), 1)


if __name__ == "__main__":
    main()
