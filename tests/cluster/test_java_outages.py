"""Kafka's own Java clients while every broker is restarted in turn, and while ZooKeeper is gone for a minute."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.apache_kafka import ToolFailure, java_command, run_tool
from tests.cluster.load import create_topic, read_log, wait_for
from tests.cluster.processes import OttlaNodes, run_nodes
from tests.cluster.test_outages import has_preferred_leaders
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("zookeeper_jars", "kafka_tools")]

TOOLS = "org.apache.kafka.tools"
PARTITIONS = 6
THROUGHPUT = 500
OUTAGE_S = 60.0
JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaClient:
    """One of Kafka's verifiable clients. It prints an event a line, as JSON."""

    def __init__(self, name: str, output: Path, *options: str) -> None:
        self._output = output
        with output.open("w") as written:
            self._process = subprocess.Popen(
                java_command(f"{TOOLS}.{name}", *options, options=JVM),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
            )

    def read_events(self, *names: str) -> list[dict[str, Any]]:
        whole_lines = self._output.read_text(errors="replace").split("\n")[:-1]
        events = [json.loads(line) for line in whole_lines if line.startswith('{"')]
        return [event for event in events if event["name"] in names]

    def read_log(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """End the client as an application does, which finishes what it has begun."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class JavaLoad:
    """A producer with acks=all and a group of two consumers, with the clients' default retries."""

    def __init__(self, nodes: OttlaNodes, topic: str, directory: Path) -> None:
        self._nodes = nodes
        self._topic = topic
        self._partitions = create_topic(nodes.bootstrap, topic, PARTITIONS)
        nodes.wait_in_sync(topic)
        config = directory / f"{topic}.properties"
        config.write_text("retries=2147483647\n")  # the client's default, which the tool changes to none
        common = ("--bootstrap-server", nodes.bootstrap, "--topic", topic)
        self._consumers = [
            JavaClient(
                "VerifiableConsumer",
                directory / f"{topic}-consumer-{number}.txt",
                *(*common, "--group-id", topic, "--reset-policy", "earliest"),
            )
            for number in range(2)
        ]
        self._producer = JavaClient(
            "VerifiableProducer",
            directory / f"{topic}-producer.txt",
            *(*common, "--acks", "-1", "--throughput", str(THROUGHPUT), "--command-config", str(config)),
        )

    def count_acknowledged(self) -> int:
        return len(self._producer.read_events("producer_send_success"))

    def count_consumed(self) -> int:
        return sum(event["count"] for each in self._consumers for event in each.read_events("records_consumed"))

    def await_progress(self, seconds: float = 1.0) -> None:
        """Wait until as many more records are written and read as are sent in some seconds."""
        written = self.count_acknowledged() + int(THROUGHPUT * seconds)
        wait_for(lambda: self.count_acknowledged() >= written, "Java writes", self._producer.read_log)
        wait_for(lambda: self.count_consumed() >= written, "Java reads", self._consumers[0].read_log)

    def finish(self) -> None:
        """Stop, and check: no error reached the clients, and each record is in the log once and was consumed."""
        self._producer.stop()
        count = self.count_acknowledged()
        wait_for(lambda: self.count_consumed() >= count, "Java reads to the end", self._consumers[0].read_log)
        for consumer in self._consumers:
            consumer.stop()
        assert self._producer.read_events("producer_send_error") == []
        failed_commits = [
            event
            for consumer in self._consumers
            for event in consumer.read_events("offsets_committed")
            if not event["success"]
        ]
        assert failed_commits == []
        sent = Counter(event["value"] for event in self._producer.read_events("producer_send_success"))
        found = Counter(
            value.decode()
            for partition in self._partitions
            for _, value in read_log(self._nodes.bootstrap, partition, committed=False)
        )
        assert found == sent and max(found.values()) == 1

    def close(self) -> None:
        for client in (self._producer, *self._consumers):
            client.close()


@contextmanager
def run_load(nodes: OttlaNodes, topic: str, directory: Path) -> Iterator[JavaLoad]:
    load = JavaLoad(nodes, topic, directory)
    try:
        load.await_progress()
        yield load
        load.finish()
    finally:
        load.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNodes]:
    with run_nodes(tmp_path_factory.mktemp("java") / "cluster") as running:
        yield running


def test_no_error_reaches_java_clients_in_a_rolling_restart(nodes: OttlaNodes, tmp_path: Path) -> None:
    # Afterwards the leaders are the preferred ones again.
    with run_load(nodes, "java-rolling", tmp_path) as load:
        for broker in nodes.brokers.values():
            assert broker.terminate() == 0
            load.await_progress()
            broker.start()
            nodes.wait_in_sync("java-rolling")
            load.await_progress()
        nodes.wait_for(lambda: has_preferred_leaders(nodes, "java-rolling"), "preferred leaders")


def test_java_clients_do_not_notice_that_zookeeper_is_gone_for_a_minute(nodes: OttlaNodes, tmp_path: Path) -> None:
    # A request that changes metadata fails within its time-out, with a message; afterwards it works again.
    config = tmp_path / "admin.properties"
    config.write_text("default.api.timeout.ms=8000\nrequest.timeout.ms=5000\n")
    create = ("--bootstrap-server", nodes.bootstrap, "--command-config", str(config), "--create", "--topic", "later")
    with run_load(nodes, "java-without-zookeeper", tmp_path) as load:
        leaders = {index: leader for index, (leader, _) in nodes.find_partitions("java-without-zookeeper").items()}
        (server,) = nodes.zookeepers
        server.kill()
        began = time.monotonic()
        with pytest.raises(ToolFailure, match=r"could not be changed within .* no connection to ZooKeeper"):
            run_tool(f"{TOOLS}.TopicCommand", *create)
        while time.monotonic() < began + OUTAGE_S:
            load.await_progress(5.0)
        found = nodes.find_partitions("java-without-zookeeper")
        assert {index: leader for index, (leader, _) in found.items()} == leaders, "nobody stepped down"
        server.start()
        nodes.wait_for(lambda: creates(create), "topics can be created again")
        load.await_progress()


def creates(create: tuple[str, ...]) -> bool:
    try:
        run_tool(f"{TOOLS}.TopicCommand", *create, "--if-not-exists")
    except ToolFailure:
        return False
    return True
