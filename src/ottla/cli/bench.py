"""`ottla bench`: measures how fast one client produces records to a topic and consumes them.

Without --topic it creates a topic and deletes it at the end. Values are hexadecimal noise, which compresses to about
half. Latency is from the call of produce() to the acknowledgement; without --rate the client's queue is always full,
and most of the latency is waiting in it.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import OPERATION_S, CommandClient, explain, to_command_error
from ottla.cli.client_settings import add_client_arguments
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT32_MAX, int_between, parse_partition_count, parse_seconds
from ottla.cli.offset_ranges import OffsetRange
from ottla.cli.output import add_format_argument, show_rows
from ottla.cli.produce import ALL, CODECS
from ottla.cli.topic_reader import SETTINGS as READING_SETTINGS
from ottla.cli.topic_reader import locate

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

PRODUCE = "produce"
CONSUME = "consume"
CHUNK = 1_000
SAMPLED_EVERY = 100
FETCHED_MAX = 10_000
REFRESH_S = 0.1
GLANCE_S = 0.05
NOISE_VALUES = 64
RECORD_BYTES_MAX = 10_000_000
"""A limit for the size of a record, so that the random values fit into memory."""


class Measurement(NamedTuple):
    phase: str
    records: int
    seconds: float
    records_per_s: float
    mb_per_s: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument("--topic", help="use this topic and keep it (default: a new one, deleted at the end)")
    parser.add_argument(
        "-p", "--partitions", type=parse_partition_count, default=4, help="partitions of the new topic (default: 4)"
    )
    parser.add_argument("--seconds", type=parse_seconds, default=5.0, help="how long records are produced (default: 5)")
    parser.add_argument(
        "--record-bytes",
        type=int_between(0, RECORD_BYTES_MAX),
        default=200,
        help="size of a record's value (default: 200)",
    )
    parser.add_argument(
        "--rate", type=int_between(1, INT32_MAX), help="records a second (default: as many as possible)"
    )
    parser.add_argument("-z", "--codec", choices=CODECS, default="none", help="compression (default: none)")
    parser.add_argument(
        "--acks", choices=("0", "1", ALL), default=ALL, help="replicas that must have a record (default: all)"
    )
    parser.add_argument(
        "--only", choices=(PRODUCE, CONSUME), help="only produce, or only consume; consume needs --topic"
    )
    add_format_argument(parser)


def run(options: argparse.Namespace) -> int:
    if options.only == CONSUME and options.topic is None:
        raise CommandError("bench: --only consume needs --topic", USAGE_ERROR)
    client = CommandClient(options)
    measurements = []
    with _topic(client, options) as topic:
        if options.only != CONSUME:
            measurements.append(ProduceLoad(client, topic, options).run(options.seconds, options.rate))
        if options.only != PRODUCE:
            measurements.append(_consume(client, topic))
        if options.topic is None and len({measurement.records for measurement in measurements}) > 1:
            produced, consumed = (measurement.records for measurement in measurements)
            raise CommandError(f"bench: {produced} records were produced and {consumed} came back")
    show_rows(options.format, Measurement._fields, measurements)
    return 0


@contextmanager
def _topic(client: CommandClient, options: argparse.Namespace) -> Iterator[str]:
    from confluent_kafka.cimpl import NewTopic

    if options.topic is not None:
        client.describe_topic(options.topic)
        yield options.topic
        return
    name = f"ottla-bench-{os.getpid()}-{time.time_ns() // 1_000_000}"
    asked = client.ask(client.admin.create_topics, [NewTopic(name, num_partitions=options.partitions)])
    client.wait_for(asked[name], f"topic {name!r}")
    try:
        yield name
    finally:
        client.wait_for(client.ask(client.admin.delete_topics, [name])[name], f"topic {name!r}")


class LiveRate:
    """A line on the terminal with the current rate; nothing if stderr is not a terminal."""

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self._shown = sys.stderr.isatty()
        self._next_s = 0.0
        self.started_s = time.perf_counter()

    def show(self, records: int, size: int) -> None:
        now_s = time.perf_counter()
        if self._shown and now_s >= self._next_s:
            self._next_s = now_s + REFRESH_S
            seconds = max(now_s - self.started_s, 0.001)
            line = f"{self._phase} {records / seconds:12,.0f} records/s {size / seconds / 1e6:9.1f} MB/s"
            print(f"\r{line}", end="", file=sys.stderr, flush=True)

    def measurement(self, records: int, size: int, latencies_s: list[float]) -> Measurement:
        """Clear the line and return the result."""
        seconds = max(time.perf_counter() - self.started_s, 0.001)
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        ordered = sorted(latencies_s)
        shares = [_milliseconds(ordered, share) for share in (0.5, 0.99, 1.0)]
        return Measurement(
            self._phase, records, round(seconds, 3), round(records / seconds), round(size / seconds / 1e6, 1), *shares
        )


def _milliseconds(ordered: list[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)


class ProduceLoad:
    def __init__(self, client: CommandClient, topic: str, options: argparse.Namespace) -> None:
        self._topic = topic
        self._size: int = options.record_bytes
        self._values = [noise(number, self._size) for number in range(NOISE_VALUES)]
        self._sampled_every = SAMPLED_EVERY if options.rate is None else 1
        self._sent = 0
        self._reason = ""
        self._latencies_s: list[float] = []
        self._producer: Producer = client.create_producer(
            {
                "linger.ms": 5,
                "batch.size": 1 << 20,
                "message.max.bytes": 1_000_000_000,  # the broker decides how large a record may be
                "message.timeout.ms": int(OPERATION_S * 1000),
                "acks": options.acks,
                "compression.type": options.codec,
            }
        )

    def run(self, seconds: float, rate: int | None) -> Measurement:
        live = LiveRate(PRODUCE)
        while (elapsed_s := time.perf_counter() - live.started_s) < seconds:
            due = CHUNK if rate is None else min(int(elapsed_s * rate) - self._sent, CHUNK)
            room = self._send(due)
            self._producer.poll(0 if due > 0 and room else 0.001)
            self._check(live)
        while self._producer.flush(GLANCE_S):
            self._check(live)
        self._check(live)
        return live.measurement(self._sent, self._sent * self._size, self._latencies_s)

    def _send(self, records: int) -> bool:
        """False if the client's queue is full, so that the broker limits the rate."""
        from confluent_kafka import KafkaException

        produce: Callable[..., None] = self._producer.produce
        for number in range(self._sent, self._sent + records):
            value = self._values[number % NOISE_VALUES]
            try:
                if number % self._sampled_every:
                    produce(self._topic, value)
                else:
                    produce(self._topic, value, on_delivery=self._delivered)
            except BufferError:
                return False
            except KafkaException as error:
                raise to_command_error(error, f"topic {self._topic!r}") from None
            self._sent = number + 1
        return True

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self._reason = explain(error)
            return
        latency_s = message.latency()
        if latency_s is not None:
            self._latencies_s.append(latency_s)

    def _check(self, live: LiveRate) -> None:
        if self._reason:
            raise CommandError(f"topic {self._topic!r}: a record was not delivered: {self._reason}")
        acknowledged = self._sent - len(self._producer)
        live.show(acknowledged, acknowledged * self._size)


def _consume(client: CommandClient, topic: str) -> Measurement:
    from confluent_kafka import KafkaError, TopicPartition

    ranges = _whole(client, topic)
    left = {partition for partition, bounds in ranges.items() if bounds.start < bounds.end}
    live = LiveRate(CONSUME)
    heard_s = live.started_s
    consumer = client.create_consumer({**READING_SETTINGS, "check.crcs": False})
    consumer.assign([TopicPartition(topic, partition, ranges[partition].start) for partition in sorted(left)])
    records = size = 0
    try:
        while left:
            for message in (messages := consumer.consume(FETCHED_MAX, GLANCE_S)):
                error = message.error()
                if error is None:
                    records += 1
                    size += len(message)
                    partition, offset = locate(message)
                    if offset + 1 >= ranges[partition].end:
                        left.discard(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(locate(message)[0])
                else:
                    raise CommandError(f"topic {topic!r}: {explain(error)}")
            if messages:
                heard_s = time.perf_counter()
            elif time.perf_counter() - heard_s > OPERATION_S:
                raise CommandError(f"topic {topic!r}: no record has arrived for {OPERATION_S:.0f} s")
            live.show(records, size)
    finally:
        consumer.close()
    return live.measurement(records, size, [])


def _whole(client: CommandClient, topic: str) -> dict[int, OffsetRange]:
    from confluent_kafka.admin import OffsetSpec

    partitions = [partition.id for partition in client.describe_topic(topic).partitions]
    beginnings = client.list_offsets(topic, partitions, OffsetSpec.earliest())
    ends = client.list_offsets(topic, partitions, OffsetSpec.latest())
    return {partition: OffsetRange(beginnings[partition], ends[partition]) for partition in partitions}


def noise(number: int, size: int) -> bytes:
    """Pseudo-random hexadecimal digits, always the same for the same number."""
    digits = bytearray()
    while len(digits) < size:
        digits += blake2b(b"%d %d" % (number, len(digits))).hexdigest().encode()
    return bytes(digits[:size])
