"""How fast one client produces records, and how fast it reads them again."""

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.bench.measuring import CONSUME, PRODUCE, LiveRate, Measurement, noise
from ottla.cli.client import OPERATION_S, CommandClient, explain, is_about_unused_group, to_command_error
from ottla.cli.command_error import CommandError
from ottla.cli.offset_ranges import OffsetRange
from ottla.cli.topic_reader import SETTINGS as READING_SETTINGS
from ottla.cli.topic_reader import locate

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

CHUNK = 1_000
SAMPLED_EVERY = 100
FETCHED_MAX = 10_000
GLANCE_S = 0.05
NOISE_VALUES = 64


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
        live = LiveRate(PRODUCE, seconds)
        try:
            while (elapsed_s := time.perf_counter() - live.started_s) < seconds:
                due = CHUNK if rate is None else min(int(elapsed_s * rate) - self._sent, CHUNK)
                room = self._send(due)
                self._producer.poll(0 if due > 0 and room else 0.001)
                self._check(live)
            while self._producer.flush(GLANCE_S):
                self._check(live)
            self._check(live)
            return live.measure(self._sent, self._sent * self._size, self._latencies_s)
        finally:
            live.clear()

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
        live.show(time.perf_counter() - live.started_s, acknowledged, acknowledged * self._size)


def consume(client: CommandClient, topic: str) -> Measurement:
    """Read everything that the topic has now."""
    from confluent_kafka import KafkaError, TopicPartition

    ranges = find_ranges(client, topic)
    left = {partition for partition, bounds in ranges.items() if bounds.start < bounds.end}
    live = LiveRate(CONSUME, sum(bounds.end - bounds.start for bounds in ranges.values()))
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
                elif not is_about_unused_group(error):
                    raise CommandError(f"topic {topic!r}: {explain(error)}")
            if messages:
                heard_s = time.perf_counter()
            elif time.perf_counter() - heard_s > OPERATION_S:
                raise CommandError(f"topic {topic!r}: no record has arrived for {OPERATION_S:.0f} s")
            live.show(records, records, size)
    finally:
        consumer.close()
        live.clear()
    return live.measure(records, size, [])


def find_ranges(client: CommandClient, topic: str) -> dict[int, OffsetRange]:
    from confluent_kafka.admin import OffsetSpec

    partitions = [partition.id for partition in client.describe_topic(topic).partitions]
    beginnings = client.list_offsets(topic, partitions, OffsetSpec.earliest())
    ends = client.list_offsets(topic, partitions, OffsetSpec.latest())
    return {partition: OffsetRange(beginnings[partition], ends[partition]) for partition in partitions}
