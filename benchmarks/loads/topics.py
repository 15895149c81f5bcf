"""Topics of the load generators: created before the clock starts, counted and deleted after it has stopped."""

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

DEADLINE_SECONDS = 120.0
CREATED_PAUSE_SECONDS = 0.01


class Mismatch(Exception):
    """The broker does not have, or did not deliver, the records that were sent."""


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Returns when Metadata has the topic too: Apache Kafka answers CreateTopics a moment earlier."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    admin.create_topics([new])[topic].result(30)
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
