"""Topics for Spark: of several partitions, filled with text by librdkafka, and counted."""

import time
from itertools import count
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.loads.bulk import flush, producer_settings, text_of
from benchmarks.loads.topics import DEADLINE_SECONDS, Mismatch

CHUNK = 2000
PARTITIONS = 2
PAUSE_SECONDS = 0.01
_numbers = count()


def fresh_topic(bootstrap: str, partitions: int = PARTITIONS) -> str:
    """The name of a new topic that the broker answers for."""
    topic = f"spark-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(30)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while admin.list_topics(topic, timeout=30).topics[topic].error is not None:
        if time.monotonic() > deadline:
            raise Mismatch(f"{topic} was created and is still unknown after {DEADLINE_SECONDS:g} s")
        time.sleep(PAUSE_SECONDS)
    return topic


def filled_topic(bootstrap: str, records: int, size: int, codec: str) -> str:
    """`records` values of `size` bytes with short keys, in turns of 2,000 to each partition."""
    topic = fresh_topic(bootstrap)
    random = Random(size)
    chunk = [{"key": b"user-%03d" % (number % 1000), "value": text_of(random, size)} for number in range(CHUNK)]
    producer = Producer(producer_settings(bootstrap, "1", linger_ms=20) | {"compression.type": codec})
    left, turn = records, 0
    while left:
        part = chunk[:left]
        queued = producer.produce_batch(topic, part, partition=turn % PARTITIONS)
        left -= queued
        turn += 1
        if queued < len(part):
            producer.poll(0.01)
    flush(producer)
    found = end_offsets(bootstrap, topic)
    if found != records:
        raise Mismatch(f"{topic} holds {found} records, and {records} were sent")
    return topic


def end_offsets(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> int:
    """Of all partitions together."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1] for each in range(partitions)]
    consumer.close()
    return sum(ends)
