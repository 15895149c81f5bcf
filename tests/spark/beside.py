"""Helpers for tests that compare both connectors: a topic with every kind of record, and rows that can be compared."""

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STOCK, OURS = "kafka", "ottla"
FIRST_MS = 1_700_000_000_000
PARTITIONS = 3
EACH = 8
"""How many records each codec gets."""
WAIT_MS = "20"
"""The time-out of a fetch that finds nothing. After the end of a transaction the stock connector waits for two of
them."""


def make_topic(bootstrap: str, name: str, partitions: int = PARTITIONS, **configs: str) -> None:
    settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(PATIENCE_S)


def fill(bootstrap: str, topic: str) -> None:
    """Write keys, headers, nulls, tombstones and times in every codec, then transactions, of which one is aborted."""
    number = 0
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for _ in range(EACH):
            producer.produce(
                topic,
                None if number % 7 == 3 else f"{codec} {number}",
                None if number % 5 == 4 else f"key {number % 3}",
                partition=number % PARTITIONS,
                timestamp=FIRST_MS + 1000 * number,
                headers=[("a", b"1"), ("a", None), ("empty", b"")] if number % 2 else None,
            )
            number += 1
        assert producer.flush(PATIENCE_S) == 0
    transact(bootstrap, topic, number)


def transact(bootstrap: str, topic: str, number: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for _ in range(PARTITIONS):
            time = FIRST_MS + 1000 * number
            producer.produce(topic, f"in a transaction {number}", partition=number % PARTITIONS, timestamp=time)
            number += 1
        assert producer.flush(PATIENCE_S) == 0
        end(PATIENCE_S)


def batch(spark: "SparkSession", connector: str, bootstrap: str, **options: Any) -> "DataFrame":
    settings = {"kafka.bootstrap.servers": bootstrap, "kafka.fetch.max.wait.ms": WAIT_MS}
    texts = {key: str(value) for key, value in options.items()}
    return spark.read.format(connector).options(**settings, **texts).load()


def collect_rows(frame: "DataFrame") -> list[tuple[Any, ...]]:
    """Rows sorted by topic, partition and offset, with times in UTC, whatever the local time zone is."""
    columns = [f"unix_micros({name}) as {name}" if name == "timestamp" else name for name in frame.columns]
    found = [tuple(_plain(each) for each in row) for row in frame.selectExpr(*columns).collect()]
    place = [frame.columns.index(name) for name in ("topic", "partition", "offset")]
    return sorted(found, key=lambda row: tuple(row[each] for each in place))


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    return [(pair["key"], _plain(pair["value"])) for pair in value] if isinstance(value, list) else value


def read_records(bootstrap: str, topic: str, partitions: int) -> list[list[tuple[Any, ...]]]:
    """Key, value and headers of each record, as an ordinary client reads them, in order for each partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "beside", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "fetch.wait.max.ms": WAIT_MS})
    places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    ends = [consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places]
    consumer.assign(places)
    found: list[list[tuple[Any, ...]]] = [[] for _ in places]
    while any(place.offset < end for place, end in zip(consumer.position(places), ends, strict=True) if end):
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found[message.partition() or 0].append((message.key(), message.value(), message.headers()))
    consumer.close()
    return found
