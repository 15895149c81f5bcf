"""Topics for Spark: with several partitions, filled with text by librdkafka."""

import time
from itertools import count
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.loads.bulk import build_producer_settings, flush, make_text
from benchmarks.loads.topics import DEADLINE_SECONDS, Mismatch

CHUNK = 2000
PARTITIONS = 2
PAUSE_SECONDS = 0.01
_numbers = count()


def create_topic(bootstrap: str, partitions: int = PARTITIONS) -> str:
    """Create a topic and wait until the broker answers for it. Returns its name."""
    topic = f"spark-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(30)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while admin.list_topics(topic, timeout=30).topics[topic].error is not None:
        if time.monotonic() > deadline:
            raise Mismatch(f"{topic} was created and is still unknown after {DEADLINE_SECONDS:g} s")
        time.sleep(PAUSE_SECONDS)
    return topic


def create_filled_topic(bootstrap: str, records: int, size: int, codec: str) -> str:
    """Create a topic with `records` values of `size` bytes and short keys, in lots of 2,000 to each partition."""
    topic = create_topic(bootstrap)
    random = Random(size)
    chunk = [{"key": b"user-%03d" % (number % 1000), "value": make_text(random, size)} for number in range(CHUNK)]
    producer = Producer(build_producer_settings(bootstrap, "1", linger_ms=20) | {"compression.type": codec})
    left, turn = records, 0
    while left:
        part = chunk[:left]
        queued = producer.produce_batch(topic, part, partition=turn % PARTITIONS)
        left -= queued
        turn += 1
        if queued < len(part):
            producer.poll(0.01)
    flush(producer)
    found = count_records(bootstrap, topic)
    if found != records:
        raise Mismatch(f"{topic} holds {found} records, and {records} were sent")
    return topic


def count_records(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> int:
    """The sum of the end offsets of all partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1] for each in range(partitions)]
    consumer.close()
    return sum(ends)
