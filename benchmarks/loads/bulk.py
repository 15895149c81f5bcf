"""Produce and consume as many records per second as the client can."""

import os
import time
from random import Random
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.loads.topics import DEADLINE_SECONDS, Mismatch, create_topic, delete_topic, verify_count

PRODUCE_CHUNK = 2000
CONSUME_CHUNK = 500
"""Records that a consumer asks its client for at a time. With 10,000 of them the client spent as much time on memory as
on records, and was the limit for any broker."""
WORDS = (b'{"order":', b'"customer":"', b'","amount":', b',"currency":"EUR","paid":true,"note":"', b"as usual ", b'"}')


def build_producer_settings(bootstrap: str, acks: str, linger_ms: float) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "linger.ms": linger_ms,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 128 * 1024,
        "socket.nagle.disable": True,
    }


def make_values(size: int, codec: str) -> list[bytes]:
    """One chunk of values. With a codec they are texts that shrink to about a third and differ from each other."""
    if codec == "none":
        return [os.urandom(size)] * PRODUCE_CHUNK
    random = Random(size)
    return [make_text(random, size) for _ in range(PRODUCE_CHUNK)]


def make_text(random: Random, size: int) -> bytes:
    parts: list[bytes] = []
    length = 0
    while length < size:
        part = random.choice(WORDS) + b"%x" % random.getrandbits(40)
        parts.append(part)
        length += len(part)
    return b"".join(parts)[:size]


def produce(
    bootstrap: str, topic: str, records: int, size: int, acks: str = "1", codec: str = "none", keep: bool = False
) -> dict[str, float]:
    """Send `records` values of `size` bytes to one partition as fast as the client can, until all are acknowledged."""
    create_topic(bootstrap, topic)
    failures: list[KafkaError] = []
    settings = build_producer_settings(bootstrap, acks, linger_ms=5) | {
        "compression.type": codec,
        "delivery.report.only.error": True,
        "on_delivery": lambda error, message: failures.append(error),
    }
    producer = Producer(settings)
    chunk = [{"value": value} for value in make_values(size, codec)]
    producer.produce(topic, chunk[0]["value"], partition=0)
    flush(producer)
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


def consume(bootstrap: str, topic: str, records: int, size: int, delete: bool = False) -> dict[str, float]:
    """Read `records` values of `size` bytes from the beginning of one partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 128 * 1024,
            "fetch.queue.backoff.ms": 1,  # its default of a second would measure the pause, not the broker
        }
    )
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
    """Check the first and the last record of a chunk, which shows if one is missing. Checking each would be slow."""
    for position in (0, len(messages) - 1):
        message = messages[position]
        if (error := message.error()) is not None:
            raise KafkaException(error)
        expected = first_offset + position
        if message.offset() != expected or len(message.value() or b"") != size:
            raise Mismatch(f"expected {size} bytes at offset {expected}, not what came with offset {message.offset()}")
