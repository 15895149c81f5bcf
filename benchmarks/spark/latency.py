"""How long a record takes from one topic to another through a streaming query without a pause between batches.

Each record is sent only when the one before it has come out. So it waits for the rest of the running micro-batch and
for one whole micro-batch.
"""

import statistics
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.loads.topics import DEADLINE_SECONDS, Mismatch, delete_topic
from benchmarks.spark.queries import Connector, Queries
from benchmarks.spark.topics import create_topic

WARM_UP = 5
"""Records that do not count, because the first batches start workers and compile."""


def measure_latencies(queries: Queries, connector: Connector, records: int) -> list[float]:
    """The milliseconds of each record, from just before it is sent until a consumer has it."""
    source, sink = create_topic(queries.bootstrap, 1), create_topic(queries.bootstrap, 1)
    producer = Producer({"bootstrap.servers": queries.bootstrap, "linger.ms": 0})
    isolation = "read_committed" if connector.transactional else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": queries.bootstrap,
            "group.id": "benchmark",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(sink, 0, 0)])
    found = []
    with queries.checkpoint() as checkpoint:
        query = queries.start_continuous_copy(connector, source, sink, checkpoint)
        try:
            for number in range(WARM_UP + records):
                found.append(_send_and_await(producer, consumer, source, b"%d" % number))
        finally:
            query.stop()
            consumer.close()
    for topic in (source, sink):
        delete_topic(queries.bootstrap, topic)
    return found[WARM_UP:]


def _send_and_await(producer: Producer, consumer: Consumer, source: str, value: bytes) -> float:
    began = time.perf_counter()
    producer.produce(source, value)
    producer.flush(DEADLINE_SECONDS)
    message = consumer.poll(DEADLINE_SECONDS)
    milliseconds = 1000 * (time.perf_counter() - began)
    if message is None:
        raise Mismatch(f"{value!r} did not come out within {DEADLINE_SECONDS:g} s")
    if (error := message.error()) is not None:
        raise KafkaException(error)
    if message.value() != value:
        raise Mismatch(f"{message.value()!r} came where {value!r} was due")
    return milliseconds


def compute_percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
