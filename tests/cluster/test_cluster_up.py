"""`ottla cluster up`: a whole cluster in one command, with a real ZooKeeper, until Ctrl-C."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli import main
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

    def end(self) -> None:
        """Ctrl-C."""
        self.child.send_signal(signal.SIGINT)
        assert self.child.wait(PATIENCE_S) == 0

    def find_process(self, words: str) -> psutil.Process:
        """The child whose command line has these words."""
        return next(each for each in self.processes() if words in " ".join(each.cmdline()))


@contextmanager
def run_command(data: Path, *options: str) -> Iterator[LocalClusterCommand]:
    running = LocalClusterCommand(data, *options)
    try:
        yield running
    finally:
        for process in running.processes() if running.child.poll() is None else []:
            process.kill()
        running.child.kill()
        running.child.wait()
        running.output.close()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[LocalClusterCommand]:
    with run_command(tmp_path) as running:
        yield running


def test_a_cluster_starts_survives_a_kill_and_ends_with_ctrl_c(command: LocalClusterCommand) -> None:
    bootstrap = command.read_until("3 brokers ready on ").split(" ready on ")[1].split()[0]
    command.read_until("3 brokers, 0 partitions")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 3)])["orders"].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("orders", b"before")
    assert producer.flush(PATIENCE_S) == 0
    command.read_until("0 offline, 0 under-replicated")

    command.find_process("--node-id 2 ").kill()
    command.read_until("broker 2 has ended")
    again = command.read_until("ottla up --node-id 2")
    assert "--zookeeper=127.0.0.1:" in again and "--port 0 " not in again
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


def test_a_lost_zookeeper_is_restored_if_that_is_wanted(tmp_path: Path) -> None:
    # One of the brokers is new. If it were started, it would found another cluster in the empty ZooKeeper.
    zookeeper, older = tmp_path / "zookeeper", tmp_path / "older"
    with run_command(tmp_path, "--brokers", "2") as command:
        bootstrap = command.read_until("2 brokers ready on ").split(" ready on ")[1].split()[0]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        producer.produce("orders", b"kept")
        assert producer.flush(PATIENCE_S) == 0
        command.find_process("--node-id 1 ").terminate()  # or it may be the last one in sync, and its data gets lost
        command.read_until("1 broker, 1 partition (2 leads 1), 0 offline")
        command.end()
    shutil.copytree(zookeeper, older)

    shutil.rmtree(zookeeper)
    shutil.rmtree(tmp_path / "broker-1")
    refused = read_refusal(tmp_path)
    assert "is empty, and" in refused and f"{tmp_path}/broker-2 has version" in refused, refused
    assert not (tmp_path / "broker-1").exists()

    with run_command(tmp_path, "--brokers", "2", "--restore") as command:
        command.read_until(f"ZooKeeper was restored from {tmp_path}/broker-2 (version ")
        bootstrap = command.read_until("2 brokers ready on ").split(" ready on ")[1].split()[0]
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"kept"
        consumer.close()
        command.end()

    shutil.rmtree(zookeeper)
    older.rename(zookeeper)
    refused = read_refusal(tmp_path)
    assert "ends at version" in refused, refused


def read_refusal(data: Path) -> str:
    """What a cluster says that is not started because its ZooKeeper has lost something."""
    with run_command(data, "--brokers", "2") as command:
        line = command.read_until("--restore writes it again")
        assert command.child.wait(PATIENCE_S) == 1
        return line


def test_zookeeper_is_started_again_where_it_was(tmp_path: Path) -> None:
    """After it was killed, and by the next command. Brokers that were added by hand find it there."""
    with run_command(tmp_path, "--brokers", "1") as command:
        ready = command.read_until("1 broker ready on ")
        command.find_process("zoo.cfg").kill()
        command.read_until(f"ZooKeeper has ended ({tmp_path}/zookeeper/zookeeper.log) and is started again")
        admin = AdminClient({"bootstrap.servers": ready.split(" ready on ")[1].split()[0]})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
        command.end()
    with run_command(tmp_path, "--brokers", "1") as command:
        again = command.read_until("1 broker ready on ")
        assert find_zookeeper(again) == find_zookeeper(ready)
        command.read_until("1 broker, 1 partition")
        command.end()


def find_zookeeper(ready: str) -> str:
    return ready.split("ZooKeeper ")[1].split(",")[0]


def test_a_zookeeper_that_cannot_be_started_again_is_reported_once(tmp_path: Path) -> None:
    with run_command(tmp_path, "--brokers", "1") as command:
        command.read_until("1 broker ready on ")
        zookeeper = command.find_process("zoo.cfg")
        data = tmp_path / "zookeeper" / "data" / "version-2"
        data.rename(tmp_path / "elsewhere")
        data.touch()
        zookeeper.kill()
        command.read_until("ZooKeeper has ended")
        assert "stop this command with Ctrl-C" in command.read_until("ended while it was starting")
        command.end()
        assert "ZooKeeper" not in command.output.read()


def test_a_second_command_does_not_touch_the_data_of_the_first(tmp_path: Path) -> None:
    # Nor those of a ZooKeeper whose command was killed. Two of them would write to the same files.
    with run_command(tmp_path, "--brokers", "1") as command:
        command.read_until("1 broker ready on ")
        configuration = tmp_path / "zookeeper" / "zoo.cfg"
        before = configuration.stat().st_mtime_ns
        left = command.processes()
        try:
            assert_in_use(tmp_path)
            command.child.kill()
            command.child.wait()
            assert_in_use(tmp_path)
            assert configuration.stat().st_mtime_ns == before
        finally:
            for process in left:
                process.kill()
            psutil.wait_procs(left, timeout=PATIENCE_S)


def assert_in_use(data: Path) -> None:
    second = LocalClusterCommand(data)
    output, _ = second.child.communicate(timeout=PATIENCE_S)
    assert second.child.returncode == 1
    assert output.count("\n") == 1 and f"{data} is in use by another `ottla cluster up`" in output, output


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--set", "num.partitions"], "'num.partitions' is not key=value"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "log.dirs=/shared"], "--set: log.dirs is what --data is for"),
        (["--set", "zookeeper.connect=zk:2181"], "--set: zookeeper.connect is what --zookeeper is for"),
        (["--zookeeper", "127.0.0.1:port"], "zookeeper.connect"),
        (["--host", "0.0.0.0"], "--allow-anonymous-network"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_wrong_setting_starts_nothing(
    options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert main(["cluster", "up", "--data", str(data), *options]) == 2
    assert reason in capsys.readouterr().err
    assert not data.exists()


def test_ports_above_the_last_one_are_wrong_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["cluster", "up", "--port", "65535", "--data", str(tmp_path)]) == 2
    assert "--port: 3 brokers need ports up to 65537, above 65535" in capsys.readouterr().err


def test_what_cannot_start_is_said_in_one_line(tmp_path: Path) -> None:
    nobody = ["--zookeeper", "127.0.0.1:1", "--set", "zookeeper.connection.timeout.ms=500"]
    command = LocalClusterCommand(tmp_path, *nobody)
    output, _ = command.child.communicate(timeout=PATIENCE_S)
    assert command.child.returncode == 1
    assert output.count("\n") == 1 and "127.0.0.1:1" in output, output
    # With a host that is open to the network the brokers come as far.
    command = LocalClusterCommand(tmp_path, *nobody, "--host", "0.0.0.0", "--allow-anonymous-network")
    output, _ = command.child.communicate(timeout=PATIENCE_S)
    assert "ANYBODY ON THE NETWORK" in output and "cannot connect to ZooKeeper at 127.0.0.1:1" in output, output


def test_the_log_of_a_zookeeper_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ZooKeeperServer(tmp_path, port=taken.getsockname()[1])
        server.launch()
        with pytest.raises(CommandError, match=r"zookeeper\.log"):
            server.wait_until_ready()
    assert "Address already in use" in (tmp_path / "zookeeper.log").read_text()
