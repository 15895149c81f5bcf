"""The load generator: one job against one broker, in a process of its own, the same for every broker.

`python -m benchmarks.load '{"job": "produce", ...}'` prints one line of JSON. Records go through librdkafka; small
requests go through raw sockets. Only what is named in the result is timed: topics, connections and metadata are there
before the clock starts. Every job counts what arrived and fails when a record is missing.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import small_requests

DEADLINE_SECONDS = 120.0
CREATED_PAUSE_SECONDS = 0.01
PRODUCE_CHUNK = 2000
CONSUME_CHUNK = 10_000
Result = dict[str, float]


class Mismatch(Exception):
    """The broker does not hold, or did not deliver, what was sent."""


def create_topic(bootstrap: str, topic: str) -> None:
    """Returns when the broker also answers for the topic: Apache Kafka says that it is created a moment earlier."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(30)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while admin.list_topics(topic, timeout=30).topics[topic].error is not None:
        if time.monotonic() > deadline:
            raise Mismatch(f"{topic} was created and is still unknown after {DEADLINE_SECONDS:g} s")
        time.sleep(CREATED_PAUSE_SECONDS)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def verify_count(bootstrap: str, topic: str, expected: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    if (low, high) != (0, expected):
        raise Mismatch(f"{topic} holds offsets {low} to {high}, expected 0 to {expected}")


def producer_settings(bootstrap: str, acks: str, linger_ms: float) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "linger.ms": linger_ms,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 128 * 1024,
        "socket.nagle.disable": True,
    }


def produce(bootstrap: str, topic: str, records: int, size: int, acks: str = "1", keep: bool = False) -> Result:
    """Send `records` values of `size` bytes to one partition as fast as the client can, and wait for every answer."""
    create_topic(bootstrap, topic)
    failures: list[KafkaError] = []
    settings = producer_settings(bootstrap, acks, linger_ms=5) | {
        "delivery.report.only.error": True,
        "on_delivery": lambda error, message: failures.append(error),
    }
    producer = Producer(settings)
    value = os.urandom(size)
    producer.produce(topic, value, partition=0)
    flush(producer)
    chunk = [{"value": value}] * PRODUCE_CHUNK
    began, cpu = time.perf_counter(), time.process_time()
    left = records
    while left:
        batch = chunk if left >= PRODUCE_CHUNK else chunk[:left]
        queued = producer.produce_batch(topic, batch, partition=0)
        left -= queued
        if queued < len(batch):
            producer.poll(0.001)
    flush(producer)
    seconds, client_cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    if failures:
        raise Mismatch(f"{len(failures)} records were refused, the first with {failures[0]}")
    verify_count(bootstrap, topic, records + 1)
    if not keep:
        delete_topic(bootstrap, topic)
    return {"records": records, "bytes": records * size, "seconds": seconds, "client_cpu_seconds": client_cpu_seconds}


def flush(producer: Producer) -> None:
    if (left := producer.flush(DEADLINE_SECONDS)) != 0:
        raise Mismatch(f"{left} records were not acknowledged within {DEADLINE_SECONDS:g} s")


def consume(bootstrap: str, topic: str, records: int, size: int, delete: bool = False) -> Result:
    """Read one partition from its beginning until `records` values of `size` bytes have come, in order."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "benchmark",
        "enable.auto.commit": False,
        "queued.max.messages.kbytes": 128 * 1024,
        "fetch.queue.backoff.ms": 1,  # its default of a second would measure the pause, not the broker
    })
    consumer.list_topics(topic, timeout=30)
    began, cpu = time.perf_counter(), time.process_time()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    received = 0
    while received < records:
        messages = consumer.consume(min(CONSUME_CHUNK, records - received), timeout=10)
        if not messages:
            raise Mismatch(f"{topic}: no record for 10 s after {received} of {records}")
        check_values(messages, received, size)
        received += len(messages)
    seconds, client_cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    consumer.close()
    if delete:
        delete_topic(bootstrap, topic)
    return {"records": received, "bytes": received * size, "seconds": seconds, "client_cpu_seconds": client_cpu_seconds}


def check_values(messages: list[Message], first_offset: int, size: int) -> None:
    """The ends of a chunk and its length tell whether a record is missing; looking at each would slow the client."""
    for position in (0, len(messages) - 1):
        message = messages[position]
        if (error := message.error()) is not None:
            raise KafkaException(error)
        if message.offset() != first_offset + position or len(message.value() or b"") != size:
            raise Mismatch(f"offset {message.offset()} came where {first_offset + position} was due, or was cut")


def latency(bootstrap: str, topic: str, records: int, size: int, warm_up: int = 500) -> Result:
    """Send one record, wait until it is acknowledged, send the next: the quantiles of the wait."""
    create_topic(bootstrap, topic)
    settings = producer_settings(bootstrap, acks="1", linger_ms=0) | {"max.in.flight.requests.per.connection": 1}
    producer = Producer(settings)
    value = os.urandom(size)
    acknowledged = 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            raise KafkaException(error)
        acknowledged += 1

    waits: list[float] = []
    for sent in range(1, warm_up + records + 1):
        began = time.perf_counter()
        producer.produce(topic, value, partition=0, on_delivery=on_delivery)
        while acknowledged < sent:
            producer.poll(1)
        waits.append(time.perf_counter() - began)
    verify_count(bootstrap, topic, warm_up + records)
    delete_topic(bootstrap, topic)
    measured = sorted(waits[warm_up:])
    return {
        "records": len(measured),
        "p50_ms": 1000 * measured[len(measured) // 2],
        "p99_ms": 1000 * measured[len(measured) * 99 // 100],
        "seconds": sum(measured),
    }


def requests(bootstrap: str, topic: str, connections: int, seconds: float) -> Result:
    """Ask for the metadata of one topic, one request in flight on each connection."""
    create_topic(bootstrap, topic)
    host, port = bootstrap.rsplit(":", 1)
    answered, took = small_requests.run((host, int(port)), topic, connections, seconds)
    delete_topic(bootstrap, topic)
    return {"requests": answered, "seconds": took}


JOBS: dict[str, Callable[..., Result]] = {
    "produce": produce,
    "consume": consume,
    "latency": latency,
    "requests": requests,
}


def main() -> None:
    job = json.loads(sys.argv[1])
    print(json.dumps(JOBS[job.pop("job")](**job)))


if __name__ == "__main__":
    main()
