"""A cluster whose ZooKeeper has lost everything: brokers refuse it, and `ottla cluster restore` brings the cluster
back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli import main
from ottla.cli.cluster.zookeeper_server import ZooKeeperServer
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("zookeeper_jars")


def start_broker(data: Path, zookeeper: str, *options: str, level: str = "error") -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ottla", "up", "--node-id", "1", "--zookeeper", zookeeper, "--data", str(data)]
    return subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", "0", "--log-level", level, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def read_line(broker: "subprocess.Popen[str]") -> str:
    assert broker.stdout is not None
    return broker.stdout.readline()


def end(broker: "subprocess.Popen[str]") -> None:
    broker.send_signal(signal.SIGTERM)
    broker.communicate(timeout=PATIENCE_S)


def test_a_lost_zookeeper_is_refused_and_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "broker"
    first, second = ZooKeeperServer(tmp_path / "first"), ZooKeeperServer(tmp_path / "second")
    try:
        first.start()
        broker = start_broker(data, f"{first.address}/ottla")
        bootstrap = read_line(broker).split(" ready on ")[1].split()[0]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 2, replication_factor=1)])["orders"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        producer.produce("orders", b"kept")
        assert producer.flush(PATIENCE_S) == 0
        assert main(["cluster", "restore", "--zookeeper", f"{first.address}/ottla", "--data", str(data)]) == 1
        assert f"brokers are running on ZooKeeper at {first.address}/ottla: 1." in capsys.readouterr().err
        end(broker)
        first.stop()

        second.start()
        refused = start_broker(data, f"{second.address}/ottla")
        output, _ = refused.communicate(timeout=PATIENCE_S)
        assert refused.returncode == 1 and output.count("\n") == 1 and "restore" in output, output
        assert f"ZooKeeper at {second.address}/ottla ends at version 0" in output and "another server or path" in output

        other = start_broker(tmp_path / "other", f"{second.address}/era")
        assert " ready on " in read_line(other)
        end(other)
        assert main(["cluster", "restore", "--zookeeper", f"{second.address}/era", "--data", str(data)]) == 1
        assert f"ZooKeeper at {second.address}/era holds cluster " in capsys.readouterr().err
        other = start_broker(tmp_path / "other", f"{second.address}/era")
        assert " ready on " in read_line(other)
        end(other)

        assert main(["cluster", "restore", "--zookeeper", f"{second.address}/ottla", "--data", str(data)]) == 0
        assert "was written to" in capsys.readouterr().out
        broker = start_broker(data, f"{second.address}/ottla")
        bootstrap = read_line(broker).split(" ready on ")[1].split()[0]
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", number, OFFSET_BEGINNING) for number in range(2)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"kept"
        consumer.close()
        end(broker)
    finally:
        first.remove()
        second.remove()


def test_a_directory_without_a_copy_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "restore", "--zookeeper", "127.0.0.1:1", "--data", str(tmp_path)]) == 1
    assert "has no copy of the metadata" in capsys.readouterr().err


def test_a_broker_whose_own_address_is_unknown_says_so(tmp_path: Path) -> None:
    # Otherwise only the others would complain, who cannot connect to it.
    server = ZooKeeperServer(tmp_path / "zookeeper")
    try:
        server.start()
        settings = ["--set", "advertised.listeners=PLAINTEXT://no-such-host.invalid:9092"]
        broker = start_broker(tmp_path / "broker", f"{server.address}/ottla", *settings, level="warning")
        assert " ready on " in read_line(broker)
        assert "finds no address for no-such-host.invalid" in read_line(broker)
        end(broker)
    finally:
        server.remove()
