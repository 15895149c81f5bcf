"""`ottla cluster up`: a whole cluster in one command, with a real ZooKeeper, until Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.cluster.zookeeper_server import ZooKeeperServer
from ottla.cli.command_error import CommandError
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("zookeeper_jars")


class LocalClusterCommand:
    """The running command: its output, its children."""

    def __init__(self, data: Path, *options: str) -> None:
        command = [sys.executable, "-m", "ottla", "cluster", "up", "--port", "0", "--host", "127.0.0.1"]
        self.child = subprocess.Popen(
            [*command, "--data", str(data), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self.child.stdout is not None
        self.output = self.child.stdout
        self.lines: list[str] = []

    def read_until(self, text: str) -> str:
        """The next line that contains the text."""
        while line := self.output.readline():
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} was never printed: {self.lines}")

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.child.pid).children(recursive=True)

    def find_broker(self, number: int) -> psutil.Process:
        return next(each for each in self.processes() if f"--node-id {number} " in " ".join(each.cmdline()))


@pytest.fixture
def command(tmp_path: Path) -> Iterator[LocalClusterCommand]:
    running = LocalClusterCommand(tmp_path)
    yield running
    for process in running.processes() if running.child.poll() is None else []:
        process.kill()
    running.child.kill()
    running.child.wait()
    running.output.close()


def test_a_cluster_starts_survives_a_kill_and_ends_with_ctrl_c(command: LocalClusterCommand) -> None:
    bootstrap = command.read_until("3 brokers ready on ").split(" ready on ")[1].split()[0]
    command.read_until("3 brokers, 0 partitions")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 3)])["orders"].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("orders", b"before")
    assert producer.flush(PATIENCE_S) == 0
    command.read_until("0 offline, 0 under-replicated")

    command.find_broker(2).kill()
    command.read_until("broker 2 has ended")
    again = command.read_until("ottla up --node-id 2")
    assert "--zookeeper 127.0.0.1:" in again and "--port 0 " not in again
    producer.produce("orders", b"after")
    assert producer.flush(PATIENCE_S) == 0
    command.read_until("2 brokers")

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = {message.value() for _ in range(2) if (message := consumer.poll(PATIENCE_S)) is not None}
    assert found == {b"before", b"after"}
    consumer.close()

    processes = command.processes()
    assert len(processes) >= 3
    command.child.send_signal(signal.SIGINT)
    assert command.child.wait(PATIENCE_S) == 0
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert not alive


def test_what_cannot_start_is_said_in_one_line(tmp_path: Path) -> None:
    command = LocalClusterCommand(
        tmp_path, "--zookeeper", "127.0.0.1:1", "--set", "zookeeper.connection.timeout.ms=500"
    )
    output, _ = command.child.communicate(timeout=PATIENCE_S)
    assert command.child.returncode == 1
    assert output.count("\n") == 1 and "127.0.0.1:1" in output, output


def test_the_log_of_a_zookeeper_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ZooKeeperServer(tmp_path, port=taken.getsockname()[1])
        server.launch()
        with pytest.raises(CommandError, match=r"zookeeper\.log"):
            server.wait_until_ready()
    assert "Address already in use" in (tmp_path / "zookeeper.log").read_text()
