"""Connectors that run in a test, without a worker, and what they have written."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ottla
from ottla.client.client import Client
from ottla.client.groups import fetch_offsets
from ottla.connect.connector import Connector, ConnectorContext
from ottla.connect.running.conversion import Transforms
from ottla.connect.running.run import Run, RunEnvironment
from ottla.connect.settings.providers import Providers
from ottla.connect.settings.redaction import Redactor
from ottla.connect.worker.offsets import SourceOffsets
from ottla.connect.worker.runs import ConnectorSpec, RunStatus
from ottla.connect.worker.topics import TopicForm, create_store_topic
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S, ask_now_and_then
from tests.spark.topics import Broker

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

OFFSETS = "connect-offsets"
GROUP = "workers"
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.storage.topic": OFFSETS,
}


class RunningConnector:
    """A run and what it has said about itself."""

    def __init__(
        self,
        spark: "SparkSession | SparkContext",
        bootstrap: str,
        connector: type[Connector],
        name: str,
        config: Mapping[str, str],
        transforms: Transforms | None = None,
    ) -> None:
        self.statuses: list[RunStatus] = []
        self.name = name
        client = {"bootstrap.servers": bootstrap}
        admin = Client(client)
        create_store_topic(admin, TopicForm(OFFSETS, 5, 1, {}))
        admin.close()
        context: Any = getattr(spark, "sparkContext", spark)
        environment = RunEnvironment(
            lambda: context, lambda _: connector, lambda _: transforms, Providers({}), Redactor(["hush-hush"])
        )
        given = {"name": name, "connector.class": connector.__name__, **config}
        of_connector = ConnectorContext(name, GROUP, int(config.get("tasks.max", "1")), client)
        self.run = Run(environment, ConnectorSpec(name, given, WORKER, of_connector), self.statuses.append)

    @property
    def status(self) -> RunStatus | None:
        return self.statuses[-1] if self.statuses else None

    def count(self, name: str) -> float:
        return self.run.counters.get(name, 0)


@contextmanager
def running(
    spark: "SparkSession", broker: Broker, connector: type[Connector], name: str, **config: Any
) -> Iterator[RunningConnector]:
    """Names of settings have `_` for the dot."""
    transforms = config.pop("transforms", None)
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    made = RunningConnector(spark, broker.bootstrap, connector, name, settings, transforms)
    made.run.start()
    try:
        yield made
    finally:
        made.run.stop()
        assert made.run.join(PATIENCE_S), made.status


def wait_until(condition: Callable[[], bool], what: Callable[[], object] = lambda: "it does not come true") -> None:
    for _ in ask_now_and_then(what):
        if condition():
            return


def read_records(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """The committed records of a topic, partition by partition."""
    columns = ("key", "value", "partition", "offset", "timestamp", "headers")
    reading = ottla.read(topic, bootstrap=broker.bootstrap, isolation="read_committed", columns=columns)
    rows: list[dict[str, Any]] = reading.to_arrow().to_pylist()
    return rows


def count_records(broker: Broker, topic: str) -> int:
    """0 if the topic does not exist."""
    client = Client({"bootstrap.servers": broker.bootstrap})
    try:
        return len(read_records(broker, topic)) if client.count_partitions(pattern=topic) else 0
    finally:
        client.close()


def read_offsets(broker: Broker, name: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The source offsets of a connector."""
    client = Client({"bootstrap.servers": broker.bootstrap})
    try:
        offsets = SourceOffsets(client, OFFSETS)
        offsets.refresh()
        return offsets.list_offsets(name)
    finally:
        client.close()


def read_group(broker: Broker, name: str) -> dict[TopicPartition, int]:
    """The committed offsets of a sink."""
    client = Client({"bootstrap.servers": broker.bootstrap})
    try:
        return {where: each.offset for where, each in fetch_offsets(client, f"connect-{name}").items()}
    finally:
        client.close()
