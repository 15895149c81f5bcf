"""Two clusters, and connectors that mirror between them in a test."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from ottla.connect.connector import Connector
from tests.connect.runs import RunningConnector, read_records
from tests.patience import PATIENCE_S
from tests.spark.topics import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    f"{name}.interval.seconds": "0"
    for name in (
        "refresh.topics",
        "sync.topic.configs",
        "refresh.groups",
        "emit.checkpoints",
        "sync.group.offsets",
        "emit.heartbeats",
    )
} | {
    f"{name}replication.factor": "1" for name in ("", "offset-syncs.topic.", "checkpoints.topic.", "heartbeats.topic.")
}
FORTH, BACK = ("A", "B"), ("B", "A")


class Clusters:
    """Two brokers, and connectors that mirror between them."""

    def __init__(self, spark: "SparkSession", a: Broker, b: Broker) -> None:
        self._spark = spark
        self._brokers = {"A": a, "B": b}
        self._stack = ExitStack()
        self._started: list[RunningConnector] = []

    def mirror(self, flow: tuple[str, str], *connectors: type[Connector], **config: str) -> list[RunningConnector]:
        source, target = flow
        settings = {
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            "source.cluster.bootstrap.servers": self._brokers[source].bootstrap,
            "sync.group.offsets.enabled": "true",
            **QUICK,
            **{name.replace("_", "."): text for name, text in config.items()},
        }
        started = []
        for connector in connectors:
            name = f"{source}-{target}-{connector.__name__}"
            run = RunningConnector(self._spark, self._brokers[target].bootstrap, connector, name, settings)
            run.run.start()
            self._stack.callback(run.run.join, PATIENCE_S)
            self._stack.callback(run.run.stop)
            started.append(run)
        self._started += started
        return started

    def describe(self) -> list[object]:
        """What the connectors say."""
        return [(run.name, run.status) for run in self._started]

    def stop(self) -> None:
        self._stack.close()


def make_rows(first: int, count: int, partitions: int = 3) -> list[dict[str, Any]]:
    return [
        {
            "key": f"k{n}" if n % 3 else None,
            "value": f"v{n}" if n % 5 else None,
            "timestamp": 1_000_000 + n,
            "partition": n % partitions,
            "headers": [("n", str(n).encode()), ("empty", None)] if n % 2 else None,
        }
        for n in range(first, first + count)
    ]


def read(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """Records without their offsets, in the order of each partition."""
    rows = read_records(broker, topic)
    return sorted(
        ({name: value for name, value in row.items() if name != "offset"} for row in rows),
        key=lambda row: row["partition"],
    )


def send_in_transaction(broker: Broker, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for n in range(first, first + count):
        producer.produce(topic, value=f"job {n}", partition=0)
    producer.commit_transaction(PATIENCE_S)


def rest_of(broker: Broker, topic: str, offset: int) -> list[str]:
    """What a consumer reads that begins at the offset."""
    return [row["value"].decode() for row in read_records(broker, topic) if row["offset"] >= offset]
