"""How long a record takes from the producer through the broker to a consumer.

One thread produces and consumes, so both times come from one clock. Without --rate one record is under way at a time,
as with Kafka's own end-to-end test, and the latency is that of an idle cluster. With --rate records are sent when they
are due, whether or not the earlier ones have arrived, and the latency is counted from when a record was due: a pause of
the broker then shows in every record that had to wait for it. The first records, the warm-up, do not count: connections
are made and caches filled with them.

The key of a record says in which run it was sent and where it stands in the order. Records of other producers in the
same topic are ignored.
"""

import argparse
import os
import time
from typing import TYPE_CHECKING

from ottla.cli.bench.measuring import END_TO_END, LiveRate, Measurement, noise
from ottla.cli.client import OPERATION_S, CommandClient, explain, is_about_unused_group, to_command_error
from ottla.cli.command_error import CommandError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

GLANCE_S = 0.05
FETCHED_MAX = 1_000
NOISE_VALUES = 16

_PRODUCER = {
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "message.max.bytes": 1_000_000_000,  # the broker decides how large a record may be
    "message.timeout.ms": int(OPERATION_S * 1000),
}
_CONSUMER = {
    "fetch.min.bytes": 1,
    "socket.nagle.disable": True,
    "auto.offset.reset": "latest",
    "isolation.level": "read_uncommitted",  # an open transaction of somebody else must not hold up what is measured
}


class LatencyTest:
    def __init__(self, client: CommandClient, topic: str, options: argparse.Namespace) -> None:
        self._client = client
        self._topic = topic
        self._size: int = options.record_bytes
        self._rate: int | None = options.rate
        self._warm_up: int = options.warm_up
        self._count: int = options.count + options.warm_up
        self._seconds: float = options.seconds
        self._values = [noise(number, self._size) for number in range(NOISE_VALUES)]
        self._run = b"ottla-bench-%d-%d-" % (os.getpid(), time.time_ns())
        self._sent = 0
        self._under_way: dict[int, float] = {}
        """When each record that has not arrived was sent, or was due."""
        self._latencies_s: list[float] = []
        self._reason = ""
        self._producer: Producer = client.create_producer(
            {**_PRODUCER, "acks": options.acks, "compression.type": options.codec}
        )

    def run(self) -> Measurement:
        """Ends when all records have arrived, or when the time is over and none is under way."""
        consumer, partitions = self._open_consumer()
        live = LiveRate(END_TO_END, self._count)
        heard_s = began_s = time.perf_counter()
        try:
            while True:
                now_s = time.perf_counter()
                is_over = self._sent >= self._count or now_s - began_s >= self._seconds
                if is_over and not self._under_way:
                    break
                if not is_over:
                    self._send_due(now_s, began_s, partitions)
                self._producer.poll(0)
                if self._reason:
                    raise CommandError(f"topic {self._topic!r}: a record was not delivered: {self._reason}")
                if self._receive(consumer, self._find_wait_s(began_s)):
                    heard_s = time.perf_counter()
                    if len(self._latencies_s) <= self._warm_up:
                        live.started_s = heard_s
                elif self._under_way and time.perf_counter() - heard_s > OPERATION_S:
                    raise CommandError(f"topic {self._topic!r}: no record has arrived for {OPERATION_S:.0f} s")
                received = self._sent - len(self._under_way)
                live.show(received, received, received * self._size)
            counted = self._latencies_s[min(self._warm_up, len(self._latencies_s) // 2) :]
            return live.measure(len(counted), len(counted) * self._size, counted)
        finally:
            live.clear()
            consumer.close()

    def _open_consumer(self) -> "tuple[Consumer, list[int]]":
        """A consumer that stands at the end of all partitions."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        partitions = sorted(partition.id for partition in self._client.describe_topic(self._topic).partitions)
        ends = self._client.list_offsets(self._topic, partitions, OffsetSpec.latest(), uncommitted=True)
        consumer = self._client.create_consumer(_CONSUMER)
        consumer.assign([TopicPartition(self._topic, partition, ends[partition]) for partition in partitions])
        return consumer, partitions

    def _send_due(self, now_s: float, began_s: float, partitions: list[int]) -> None:
        """Send the records whose time has come: one that is under way keeps the next one back if there is no rate."""
        if self._rate is None:
            if not self._under_way:
                self._send(time.perf_counter(), partitions)
            return
        while self._sent < self._count and (due_s := began_s + self._sent / self._rate) <= now_s:
            if not self._send(due_s, partitions):
                return

    def _send(self, began_s: float, partitions: list[int]) -> bool:
        """False if the client's queue is full: the record is sent later, and its latency counts from `began_s` on."""
        from confluent_kafka import KafkaException

        number = self._sent
        try:
            self._producer.produce(
                self._topic,
                self._values[number % NOISE_VALUES],
                self._run + b"%d" % number,
                partitions[number % len(partitions)],
                on_delivery=self._delivered,
            )
        except BufferError:
            return False
        except KafkaException as error:
            raise to_command_error(error, f"topic {self._topic!r}") from None
        self._under_way[number] = began_s
        self._sent += 1
        return True

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self._reason = explain(error)

    def _find_wait_s(self, began_s: float) -> float:
        """How long to wait for a record: until the next one is due."""
        if self._rate is None or self._sent >= self._count:
            return GLANCE_S
        return min(max(began_s + self._sent / self._rate - time.perf_counter(), 0.0), GLANCE_S)

    def _receive(self, consumer: "Consumer", wait_s: float) -> bool:
        """Take what has arrived. True if one of this run's records was among it."""
        first = consumer.poll(wait_s)
        arrived_s = time.perf_counter()
        is_ours = False
        for message in [] if first is None else [first, *consumer.consume(FETCHED_MAX, 0)]:
            if error := message.error():
                if is_about_unused_group(error):
                    continue
                raise CommandError(f"topic {self._topic!r}: {explain(error)}")
            key = message.key()
            if not isinstance(key, bytes) or not key.startswith(self._run):
                continue
            sent_s = self._under_way.pop(int(key.removeprefix(self._run)), None)
            if sent_s is not None:
                self._latencies_s.append(arrived_s - sent_s)
                is_ours = True
        return is_ours
