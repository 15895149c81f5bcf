"""`ottla mirror up` with MirrorMaker 2's configuration file: two flows, and a kill of the process between."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import ottla.testing
from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.client.client import Client
from ottla.connect.running.topics import TopicGroup, create_topic
from ottla.testing import LocalBroker
from tests.connect.runs import count_records, read_records, wait_until
from tests.spark.topics import Broker, send

CONFIG = """\
clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}
A->B.enabled = true
A->B.topics = orders
B->A.enabled = true
B->A.topics = refunds
emit.heartbeats.enabled = false
replication.factor = -1
offset-syncs.topic.replication.factor = -1
checkpoints.topic.replication.factor = -1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
offset.storage.partitions = 2
status.storage.partitions = 1
refresh.topics.interval.seconds = 1
session.timeout.ms = 6000
spark.master = local[2]
spark.ui.enabled = false
"""


def start(file: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ottla", "mirror", "up", str(file)]
    with file.with_suffix(".log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ottla: mirrors A->B, B->A\n", file.with_suffix(".log").read_text()
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def check_both_directions(broker: Broker, other: Broker, tmp_path: Path) -> None:
    """Everything arrives once, also what was under way when the process was killed."""
    for cluster, topic, count in ((broker, "orders", 2), (other, "refunds", 1)):
        with closing(Client({"bootstrap.servers": cluster.bootstrap})) as client:
            create_topic(client, topic, TopicGroup(partitions=count, replication_factor=1))
    file = tmp_path / "mm2.properties"
    file.write_text(CONFIG.format(a=broker.bootstrap, b=other.bootstrap))
    send(broker, "orders", [{"value": f"{n}"} for n in range(500)])
    send(other, "refunds", [{"value": f"{n}"} for n in range(10)])
    process = start(file)
    try:
        wait_until(lambda: count_records(other, "A.orders") > 0, file.with_suffix(".log").read_text)
        send(broker, "orders", [{"value": f"{n}"} for n in range(500, 1000)])
        kill(process)
        process = start(file)
        wait_until(lambda: count_records(other, "A.orders") >= 1000, file.with_suffix(".log").read_text)
        wait_until(lambda: count_records(broker, "B.refunds") >= 10, file.with_suffix(".log").read_text)
    finally:
        kill(process)
    found = sorted(int(row["value"]) for row in read_records(other, "A.orders"))
    assert found == list(range(1000))
    assert count_records(broker, "B.refunds") == 10


@pytest.mark.long
def test_both_directions_and_a_kill(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    with ottla.testing.broker() as other:
        check_both_directions(ottla_broker, other, tmp_path)


@pytest.mark.long
def test_apache_kafka_and_a_kill(ottla_broker: LocalBroker, apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    check_both_directions(ottla_broker, apache_kafka, tmp_path)
