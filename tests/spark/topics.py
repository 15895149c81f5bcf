"""Helpers for topics: an ordinary client writes records, and Spark reads rows."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.testing import LocalBroker, LocalCluster
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader


Broker = LocalBroker | LocalCluster | ApacheKafka


def send(broker: Broker, topic: str, records: Iterable[dict[str, Any]], **settings: Any) -> None:
    """Send records, given as arguments of confluent-kafka: value, key, partition, headers, timestamp."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **settings})
    failures: list[str] = []

    def told(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for record in records:
        producer.produce(topic, on_delivery=told, **record)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert not failures


def received(broker: Broker, topic: str, count: int) -> list[Message]:
    """Read this many records of a topic's first partition with an ordinary client."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "received"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = consumer.consume(count, PATIENCE_S)
    consumer.close()
    return found


def reader(spark: "SparkSession", broker: Broker, topic: str, **options: Any) -> "DataFrameReader":
    chosen = {"subscribe": topic} if not {"assign", "subscribePattern"} & options.keys() else {}
    settings = {"kafka.bootstrap.servers": broker.bootstrap, **chosen, **options}
    return spark.read.format("ottla").options(**{key: str(value) for key, value in settings.items()})


def stream(spark: "SparkSession", broker: Broker, topic: str, **options: Any) -> "DataStreamReader":
    chosen = {"subscribe": topic} if not {"assign", "subscribePattern"} & options.keys() else {}
    settings = {"kafka.bootstrap.servers": broker.bootstrap, **chosen, **options}
    return spark.readStream.format("ottla").options(**{key: str(value) for key, value in settings.items()})


def values(frame: "DataFrame") -> list[str]:
    """The values of a frame, in the order of partitions and offsets."""
    rows = frame.select("partition", "offset", "value").collect()
    return [bytes(row.value).decode() for row in sorted(rows, key=lambda row: (row.partition, row.offset))]


def committed(broker: Broker, group: str, topic: str, partitions: int) -> list[int]:
    """The committed offset of a group in each partition, as every tool shows it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, each) for each in range(partitions)])]
    found = admin.list_consumer_group_offsets(wanted)[group].result(PATIENCE_S)
    return [each.offset for each in found.topic_partitions]


def finish(query: "StreamingQuery") -> None:
    """Wait for a query that ends by itself. Its error fails the test."""
    assert query.awaitTermination(PATIENCE_S), "the query did not end"
    query.exception()
