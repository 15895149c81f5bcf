"""Load generators for a topic of several partitions with three replicas: acks=all, idempotent, two in sync at least."""

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.loads.bulk import CONSUME_CHUNK, PRODUCE_CHUNK, build_producer_settings, flush
from benchmarks.loads.latency import compute_quantiles
from benchmarks.loads.topics import Mismatch, create_topic, delete_topic

REPLICAS = 3
CONFIG = {"min.insync.replicas": "2"}
PATIENCE_SECONDS = 60.0
TRANSACTION_VALUE = bytes(100)
READS = 3


def build_settings(bootstrap: str, linger_ms: float) -> dict[str, Any]:
    return build_producer_settings(bootstrap, "all", linger_ms) | {"enable.idempotence": True}


def produce(
    bootstrap: str, topic: str, records: int, size: int, partitions: int, keep: bool = False
) -> dict[str, float]:
    """Send as fast as the client can, to all partitions in turn, until everything is acknowledged."""
    create_topic(bootstrap, topic, partitions, REPLICAS, CONFIG)
    failures: list[KafkaError] = []
    settings = build_settings(bootstrap, linger_ms=5) | {
        "delivery.report.only.error": True,
        "on_delivery": lambda error, message: failures.append(error),
    }
    producer = Producer(settings)
    chunk = [{"value": os.urandom(size)}] * PRODUCE_CHUNK
    for partition in range(partitions):
        producer.produce(topic, chunk[0]["value"], partition=partition)
    flush(producer)
    began, cpu = time.perf_counter(), time.process_time()
    left, turn = records, 0
    while left:
        batch = chunk if left >= PRODUCE_CHUNK else chunk[:left]
        queued = producer.produce_batch(topic, batch, partition=turn % partitions)
        left, turn = left - queued, turn + 1
        if queued < len(batch):
            producer.poll(0.001)
    flush(producer)
    seconds, client_cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    if failures:
        raise Mismatch(f"{len(failures)} records were refused, the first with {failures[0]}")
    verify_counts(bootstrap, topic, partitions, records + partitions)
    if not keep:
        delete_topic(bootstrap, topic)
    return {"records": records, "bytes": records * size, "seconds": seconds, "client_cpu_seconds": client_cpu_seconds}


def verify_counts(bootstrap: str, topic: str, partitions: int, expected: int) -> None:
    """Check that the partitions together hold so many records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_SECONDS)
        for partition in range(partitions)
    ]
    consumer.close()
    if (found := sum(high - low for low, high in ends)) != expected:
        raise Mismatch(f"{topic} holds {found} records, expected {expected}")


def consume(bootstrap: str, topic: str, records: int, size: int, partitions: int) -> dict[str, float]:
    """Read `records` values of `size` bytes from the beginning of all partitions, several times: once takes too short
    a time to be measured well."""
    reads = [read_all(bootstrap, topic, records, size, partitions) for _ in range(READS)]
    return {name: sum(read[name] for read in reads) for name in reads[0]}


def read_all(bootstrap: str, topic: str, records: int, size: int, partitions: int) -> dict[str, float]:
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
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    received = 0
    while received < records:
        messages = consumer.consume(min(CONSUME_CHUNK, records - received), timeout=10)
        if not messages:
            raise Mismatch(f"{topic}: no record for 10 s after {received} of {records}")
        check_sizes(messages, size)
        received += len(messages)
    seconds, client_cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    consumer.close()
    return {"records": received, "bytes": received * size, "seconds": seconds, "client_cpu_seconds": client_cpu_seconds}


def check_sizes(messages: Sequence[Message], size: int) -> None:
    """Check the first and the last record of a chunk. Checking each would be slow."""
    for message in (messages[0], messages[-1]):
        if (error := message.error()) is not None:
            raise KafkaException(error)
        if len(message.value() or b"") != size:
            raise Mismatch(f"expected {size} bytes, not {len(message.value() or b'')}")


def measure_acknowledgements(
    bootstrap: str, topic: str, rate: float, seconds: float, size: int, partitions: int, warm_up: int = 500
) -> dict[str, float]:
    """Send at a fixed rate. Returns the quantiles of the time from due to acknowledged by all replicas in sync."""
    create_topic(bootstrap, topic, partitions, REPLICAS, CONFIG)
    producer = Producer(build_settings(bootstrap, linger_ms=0))
    value = os.urandom(size)
    waits: list[float] = []

    def send(partition: int, due: float) -> None:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            waits.append(time.perf_counter() - due)

        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)

    for number in range(warm_up):
        send(number % partitions, time.perf_counter())
        producer.poll(0)
    flush(producer)
    waits.clear()
    count, began = int(rate * seconds), time.perf_counter()
    for number in range(count):
        due = began + number / rate
        while (early := due - time.perf_counter()) > 0:
            producer.poll(early)
        send(number % partitions, due)
        producer.poll(0)
    flush(producer)
    delete_topic(bootstrap, topic)
    return {"records": count, **compute_quantiles(waits)}


def run_transactions(bootstrap: str, topic: str, partitions: int, seconds: float, producers: int) -> dict[str, float]:
    """Transactions of one record for each partition, by several producers. The first half of a run is a warm-up."""
    create_topic(bootstrap, topic, partitions, REPLICAS, CONFIG)
    commits: list[tuple[float, float]] = []
    failures: list[Exception] = []
    begun = [Producer(build_settings(bootstrap, 0) | {"transactional.id": f"{topic}-{n}"}) for n in range(producers)]
    for producer in begun:
        producer.init_transactions(PATIENCE_SECONDS)
    began = time.perf_counter()

    def work(producer: Producer) -> None:
        try:
            while (now := time.perf_counter()) < began + 1.5 * seconds:
                producer.begin_transaction()
                for partition in range(partitions):
                    producer.produce(topic, TRANSACTION_VALUE, partition=partition)
                producer.commit_transaction(PATIENCE_SECONDS)
                commits.append((now, time.perf_counter() - now))
        except KafkaException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(producer,)) for producer in begun]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    counted = [wait for at, wait in commits if at >= began + 0.5 * seconds]
    delete_topic(bootstrap, topic)
    return {"transactions": len(commits), "per_second": len(counted) / seconds, **compute_quantiles(counted)}
