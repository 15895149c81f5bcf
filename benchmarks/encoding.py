"""Rows per second from Arrow columns to record batches, and on to a broker: python -m benchmarks.encoding

The first table is the encoder alone, for values of 100 B and 1 KB, with and without keys, for one and for twelve
partitions, in every codec: million rows and megabytes of values per CPU second. The second table sends the batches to a
broker in a child process and waits for every acknowledgement, per second of the clock and per CPU second of the sender.
"""

import argparse
import time
from random import Random

import numpy as np
import pyarrow as pa

from benchmarks.validation import make_text
from ottla.client.client import Client
from ottla.client.sending import Sender
from ottla.pipeline.encoding import Encoder
from ottla.records.compression import NAMES
from ottla.testing import broker

LOT_ROWS = 10_000
SHAPES = tuple((size, keys, partitions) for size in (100, 1000) for keys in (False, True) for partitions in (1, 12))
TOPIC = "events"


def make_rows(size: int, keys: bool) -> pa.RecordBatch:
    """As many rows as Spark hands over at once. The values are words, which compress as text does."""
    random = Random(1)
    words = make_text(random, size * 1000)
    values = [words[start : start + size] for start in (random.randrange(len(words) - size) for _ in range(LOT_ROWS))]
    columns = {"value": pa.array(values, pa.binary())}
    if keys:
        numbers = np.random.default_rng(1).integers(0, 100_000, LOT_ROWS)
        columns["key"] = pa.array([b"user-%d" % number for number in numbers], pa.binary())
    return pa.record_batch(columns)


def measure_encoding(rows: pa.RecordBatch, partitions: int, codec: int, seconds: float) -> float:
    """Rows per CPU second, which does not depend on other programs of the machine."""
    encoder = Encoder(lambda topic: partitions, Random(1), topic=TOPIC, codec=codec)
    for _ in range(20):
        list(encoder.add(rows))
    began, count = time.process_time(), 0
    while (spent := time.process_time() - began) < seconds:
        for _ in range(10):
            count += sum(encoded.count for encoded in encoder.add(rows))
    return count / spent


def measure_sending(client: Client, rows: pa.RecordBatch, codec: int, lots: int) -> tuple[float, float]:
    """Rows per second until the last one is acknowledged, and rows per CPU second."""
    (partitions,) = client.count_partitions([TOPIC]).values()
    encoder = Encoder(lambda topic: partitions, Random(1), topic=TOPIC, codec=codec)
    sender = Sender(client)
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(lots):
        sender.send_all(encoder.add(rows))
    sender.send_all(encoder.flush())
    sender.flush()
    count = lots * LOT_ROWS
    return count / (time.perf_counter() - began), count / (time.process_time() - worked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row of the first table")
    parser.add_argument("--lots", type=int, default=100, help="of 10,000 rows each, for each row of the second table")
    options = parser.parse_args()
    print(f"{'encoder':<38}{'M rows/s':>10}{'MB/s':>8}")
    for size, keys, partitions in SHAPES:
        rows = make_rows(size, keys)
        for codec in range(5) if not keys and partitions == 1 else (0,):
            rate = measure_encoding(rows, partitions, codec, options.seconds)
            name = f"{size} B, {'keys' if keys else 'no keys'}, partitions: {partitions}, {NAMES[codec]}"
            print(f"{name:<38}{rate / 1e6:>10.2f}{rate * size / 1e6:>8.0f}", flush=True)
    print(f"\n{'to a broker':<38}{'M rows/s':>10}{'MB/s':>8}{'M rows/CPU s':>16}")
    with broker(process=True) as local:
        local.create_topic(TOPIC, 2)
        client = Client({"bootstrap.servers": local.bootstrap})
        for size in (100, 1000):
            for codec in (0, 3, 4):
                rows = make_rows(size, False)
                measure_sending(client, rows, codec, 5)
                rate, per_cpu_second = measure_sending(client, rows, codec, options.lots)
                name = f"{size} B, no keys, partitions: 2, {NAMES[codec]}"
                rates = f"{rate / 1e6:>10.2f}{rate * size / 1e6:>8.0f}{per_cpu_second / 1e6:>16.2f}"
                print(f"{name:<38}{rates}", flush=True)
        client.close()


if __name__ == "__main__":
    main()
