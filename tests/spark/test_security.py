"""Spark queries and a worker of Connect log in over TLS at a broker with access control."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
import ottla.testing
from ottla.cli.acl import Acl, create
from ottla.client.client import Client
from ottla.connect.serving import WorkerProcess
from ottla.connect.worker.runs import TargetState
from ottla.connect.worker.standalone import ConnectorFile
from ottla.errors import KafkaError
from ottla.testing import LocalBroker
from tests.streams.apps import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalBroker]:
    with ottla.testing.broker(security="sasl_ssl", acls=True, log_initial_task_delay_ms=86_400_000) as broker:
        yield broker


def allow(broker: LocalBroker, user: str, resource: str, name: str, *operations: str) -> None:
    with closing(Client(broker.client_settings)) as client:
        create(client, [Acl(f"User:{user}", "allow", each, resource, "literal", name, "*") for each in operations])


def count(broker: LocalBroker, topic: str) -> int:
    reading = ottla.read(topic, bootstrap=broker.bootstrap, settings=broker.client_settings, isolation="read_committed")
    return int(reading.to_arrow().num_rows)


def name_options(settings: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in settings.items()}


def test_a_query_may_do_what_its_user_may(
    spark: "SparkSession", secured: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A query writes and reads a topic as a user with just these rights, and no other topic. Its plan has no secret."""
    for topic in ("open", "closed"):
        secured.create_topic(topic)
    user = secured.create_user("spark-user")
    allow(secured, "spark-user", "topic", "open", "write", "read", "describe")
    rows = spark.createDataFrame([(str(number),) for number in range(20)], "value string")
    options = name_options(user)
    rows.write.format("ottla").mode("append").options(**options, topic="open", guarantee="at-least-once").save()
    frame = spark.read.format("ottla").options(**options, subscribe="open").load()
    assert frame.count() == 20
    with pytest.raises(Exception, match=r"TOPIC_AUTHORIZATION_FAILED|there is no topic"):
        spark.read.format("ottla").options(**options, subscribe="closed").load().count()
    frame.explain(True)
    assert user["sasl.password"] not in capsys.readouterr().out
    with pytest.raises(KafkaError):
        ottla.read("closed", bootstrap=secured.bootstrap, settings=user).to_arrow()


def test_a_query_logs_in_with_the_names_of_java(spark: "SparkSession", secured: LocalBroker) -> None:
    secured.create_topic("java-names")
    options = {**name_options(secured.java_settings), "subscribe": "java-names"}
    assert spark.read.format("ottla").options(**options).load().count() == 0


def test_a_worker_of_connect_logs_in(spark: "SparkSession", secured: LocalBroker, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\nthree\n")
    secured.create_topic("connected")
    worker = WorkerProcess(
        {
            **secured.java_settings,
            "listeners": "http://127.0.0.1:0",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        },
        is_distributed=False,
        spark=spark.sparkContext,
    )
    with closing(worker):
        source = {"name": "file", "connector.class": "FileStreamSource", "file": str(lines), "topic": "connected"}
        worker.start([ConnectorFile("file", source, TargetState.STARTED)])
        wait_until(lambda: count(secured, "connected") == 3)
