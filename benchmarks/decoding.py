"""Records per second from a topic to Arrow columns: python -m benchmarks.decoding [--quick]

For records of 100 B and 1 KB, in each codec, four ways:

    decode      record batches in memory to Arrow columns (key, value, offset, timestamp and the rest), no network
    read        the same from a broker, as a Spark task does it: fetch, check, decode
    client      confluent-kafka's consumer, `consume(10_000)`, which looks at each value
    Python      the plain decoder of `ottla.records.batch`, on batches in memory

--processor-time counts the CPU time of this process, all its threads together, instead of the time on the clock. On a
busy machine that is the figure to trust, but it does not include the time that a reader waits for the broker.

One process with one thread; the broker is another process. The four ways take turns for several rounds, and each figure
is the best round: other programs on the machine can only make it slower. The records are counted in every round.
"""

import argparse
import sys
import time
from collections.abc import Callable
from random import Random

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as AssignedPartition

from benchmarks.peers.ottla_broker import OttlaBroker
from ottla.client.client import LATEST, Client
from ottla.client.fetching import fetch
from ottla.pipeline.decoding import COLUMNS, decode
from ottla.records.batch import decode as decode_plainly
from ottla.records.batch import headers
from ottla.records.compression import NAMES
from ottla.topic_partition import TopicPartition

SIZES = (100, 1000)
BYTES_EACH = 100_000_000
ROUNDS = 5
PLAIN_RECORDS_MAX = 50_000
WORDS = b"alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau".split()


class Sample:
    """A topic with one partition, filled with records of one size in one codec."""

    def __init__(self, address: str, codec: str, size: int, total_bytes: int) -> None:
        self.topic = f"{codec}-{size}"
        self.records = total_bytes // size
        self._address = address
        self._fill(codec, size)
        self._client = Client({"bootstrap.servers": address})
        self._partition = TopicPartition(self.topic, 0)
        self._end = self._client.list_offsets({self._partition: LATEST})[self._partition].offset
        self._raw = list(fetch(self._client, self.topic, 0, 0, self._end))

    def _fill(self, codec: str, size: int) -> None:
        random = Random(1)
        values = [b" ".join(random.choice(WORDS) for _ in range(size // 3))[:size] for _ in range(1000)]
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "compression.type": codec,
                "linger.ms": 50,
                "batch.size": 1 << 17,
                "queue.buffering.max.kbytes": 1 << 20,
                "queue.buffering.max.messages": 0,
            }
        )
        for number in range(self.records):
            while True:
                try:
                    producer.produce(self.topic, values[number % 1000], partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()

    def decode(self) -> int:
        return sum(each.num_rows for each in decode(self._raw, self.topic, 0, 0, self._end, COLUMNS))

    def read(self) -> int:
        raw = fetch(self._client, self.topic, 0, 0, self._end)
        return sum(each.num_rows for each in decode(raw, self.topic, 0, 0, self._end, COLUMNS))

    def client(self) -> int:
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": "benchmark", "enable.auto.commit": False})
        consumer.assign([AssignedPartition(self.topic, 0, 0)])
        count = 0
        while count < self.records:
            messages = consumer.consume(10_000, 10.0)
            if not messages:
                break
            count += sum(message.value() is not None for message in messages)
        consumer.close()
        return count

    def decode_in_python(self) -> int:
        """Decodes a part of the records, because this decoder is slow."""
        count = 0
        for view in self._raw:
            for position, _ in headers(view):
                count += len(decode_plainly(view, position))
                if count >= PLAIN_RECORDS_MAX:
                    return count
        return count

    def close(self) -> None:
        self._client.close()


def measure_best_rates(sample: Sample, rounds: int, seconds: Callable[[], float]) -> list[float]:
    """The records per second of each way, in its best round."""
    ways: list[Callable[[], int]] = [sample.decode, sample.read, sample.client, sample.decode_in_python]
    best = [0.0] * len(ways)
    for _ in range(rounds):
        for index, way in enumerate(ways):
            began = seconds()
            count = way()
            rate = count / (seconds() - began)
            if way != sample.decode_in_python and count != sample.records:
                sys.exit(f"{sample.topic}: {count} records instead of {sample.records}")
            best[index] = max(best[index], rate)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, two rounds")
    parser.add_argument("--processor-time", action="store_true", help="count CPU time instead of the time on the clock")
    options = parser.parse_args()
    seconds = time.process_time if options.processor_time else time.perf_counter
    total, rounds = (BYTES_EACH // 10, 2) if options.quick else (BYTES_EACH, ROUNDS)
    titles = ("decode", "read", "client", "Python", "read/client", "decode/Python")
    print(f"{'records':16}", *(f"{title:>14}" for title in titles))
    with OttlaBroker() as broker:
        for size in SIZES:
            for codec in NAMES:
                sample = Sample(broker.bootstrap, codec, size, total)
                decoded, read, client, plain = measure_best_rates(sample, rounds, seconds)
                sample.close()
                rates = (f"{rate:14,.0f}" for rate in (decoded, read, client, plain))
                ratios = (f"{ratio:13.1f}x" for ratio in (read / client, decoded / plain))
                print(f"{size:5} B {codec:8}", *rates, *ratios, flush=True)


if __name__ == "__main__":
    main()
