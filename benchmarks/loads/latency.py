"""How long one record takes until it is acknowledged, and until it reaches a consumer."""

import os
import struct
import threading
import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.loads.bulk import build_producer_settings, flush
from benchmarks.loads.topics import Mismatch, create_topic, delete_topic, verify_count

STAMP = struct.Struct(">q")
SILENCE_SECONDS = 10.0


def compute_quantiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    places = {"p50_ms": 500, "p99_ms": 990, "p999_ms": 999}
    return {name: 1000 * ordered[len(ordered) * place // 1000] for name, place in places.items()}


def measure_synchronous(bootstrap: str, topic: str, records: int, size: int, warm_up: int = 500) -> dict[str, float]:
    """Send one record at a time, and wait until it is acknowledged. Returns the quantiles of the wait."""
    create_topic(bootstrap, topic)
    settings = build_producer_settings(bootstrap, acks="1", linger_ms=0) | {"max.in.flight.requests.per.connection": 1}
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
    return {"records": records, **compute_quantiles(waits[warm_up:])}


def measure_end_to_end(
    bootstrap: str, topic: str, rate: float, seconds: float, size: int, acks: str = "all", warm_up: int = 500
) -> dict[str, float]:
    """Send at a fixed rate while a consumer reads. Returns the quantiles of the time from due to received.

    A record counts from when it was due, not from when it was sent: otherwise a sender that is delayed would hide it.
    """
    create_topic(bootstrap, topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    producer = Producer(build_producer_settings(bootstrap, acks, linger_ms=0))
    await_delivery(producer, consumer, topic, size)
    count = warm_up + int(rate * seconds)
    sender = threading.Thread(target=send_on_time, args=(producer, topic, rate, count, size), daemon=True)
    sender.start()
    waits: list[float] = []
    while len(waits) < count:
        messages = consumer.consume(1000, timeout=0.001) or consumer.consume(1, timeout=SILENCE_SECONDS)
        now = time.perf_counter_ns()
        if not messages:
            raise Mismatch(f"no record for {SILENCE_SECONDS:g} s after {len(waits)} of {count}")
        waits += [(now - read_due_ns(message)) / 1e9 for message in messages]
    sender.join()
    flush(producer)
    consumer.close()
    delete_topic(bootstrap, topic)
    return {"records": count - warm_up, **compute_quantiles(waits[warm_up:])}


def await_delivery(producer: Producer, consumer: Consumer, topic: str, size: int) -> None:
    """Send records until the consumer has received one, which shows that its assignment is in effect."""
    deadline = time.monotonic() + SILENCE_SECONDS
    sent = received = 0
    while received == 0 or received < sent:
        if time.monotonic() > deadline:
            raise Mismatch(f"{received} of {sent} records reached the consumer in {SILENCE_SECONDS:g} s")
        if received == 0:
            producer.produce(topic, bytes(size), partition=0)
            flush(producer)
            sent += 1
        found = consumer.consume(10, timeout=0.2)
        received = max((message.offset() or 0) + 1 for message in found) if found else received


def read_due_ns(message: Message) -> int:
    if (error := message.error()) is not None:
        raise KafkaException(error)
    return int(STAMP.unpack_from(message.value() or b"")[0])


def send_on_time(producer: Producer, topic: str, rate: float, count: int, size: int) -> None:
    padding = os.urandom(size - STAMP.size)
    began = time.perf_counter_ns()
    for number in range(count):
        due = began + int(number / rate * 1e9)
        while (early := due - time.perf_counter_ns()) > 0:
            time.sleep(early / 1e9)
        producer.produce(topic, STAMP.pack(due) + padding, partition=0)
        producer.poll(0)
