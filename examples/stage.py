"""Helpers of the Spark examples: they start a broker and a Spark session, create topics, send and read records.

python examples/website_activity.py                               starts a broker and removes it afterwards
python examples/website_activity.py --bootstrap localhost:9092    uses your broker; the topics are kept
"""

import argparse
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import ottla.spark
import ottla.testing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 30
COMPACTED = {"cleanup.policy": "compact"}

Record = tuple[str, str | None]
"""Key and value. A record without a value is a tombstone, which deletes the key."""


def run(main: "Callable[[SparkSession, str], None]", description: str | None) -> None:
    """Parses the command line of an example and calls its `main`."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="use this broker instead of starting one")
    given = parser.parse_args().bootstrap
    with nullcontext() if given else ottla.testing.broker(process=True) as own:
        spark = ottla.spark.session("example", config={"spark.sql.shuffle.partitions": 2})
        main(spark, own.bootstrap if own is not None else given)
        spark.stop()


def create_topics(bootstrap: str, *names: str, partitions: int = 2, settings: dict[str, str] | None = None) -> None:
    """Creates topics. Topics of an earlier run must be deleted first, because their records would be counted again."""
    topics = [NewTopic(name, num_partitions=partitions, config=settings or {}) for name in names]
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})  # must live until the results are there
    try:
        for created in client.create_topics(topics).values():
            created.result(PATIENCE_S)
    except KafkaException as error:
        raise SystemExit(error.args[0].str()) from None


def send(bootstrap: str, topic: str, records: Iterable[Record]) -> None:
    """Sends records. All are acknowledged when this returns."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(PATIENCE_S) == 0


def stream(spark: "SparkSession", bootstrap: str, topic: str) -> "DataFrame":
    """A topic from its beginning, as a stream of committed records."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("ottla").options(**options, **{"kafka.isolation.level": "read_committed"}).load()


def table(spark: "SparkSession", bootstrap: str, topic: str) -> "DataFrame":
    """The committed records that a topic has now."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    return spark.read.format("ottla").options(**options).load()
