"""`ottla cluster up`: a whole cluster on this machine. ZooKeeper and the brokers are child processes of the command.

Each child writes its log to a file of the data directory and leads a session of its own, so that Ctrl-C in the terminal
reaches this command only, which then stops the brokers, and ZooKeeper after them. A broker that ends is reported and
the others go on: whoever kills one on purpose gets the command that starts it again. ZooKeeper, which no command of
Ottla starts alone, is started again by itself.

A lock in the data directory keeps a second such command away. ZooKeeper, which has no lock of its own, inherits it, so
that the lock outlives a command that is killed for as long as its ZooKeeper does.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command_error import USAGE_ERROR, CommandError, explain_error
from ottla.cli.directories import find_data_directory
from ottla.cli.interruption import Interrupted, Interruption
from ottla.cli.numbers import PORT_MAX
from ottla.cli.output import counted
from ottla.cli.pairs import parse_pairs
from ottla.storage.directories import LOCK
from ottla.storage.files import RealDisk, RealLock

if TYPE_CHECKING:
    from ottla.cli.cluster.zookeeper_server import ZooKeeperServer
    from ottla.client.client import Client

BROKERS_MAX = 32
BROKER_DIRECTORY = "broker-"
"""What precedes the id in the name of a broker's data directory."""
REPLICATION_FACTOR = 3
STOP_S = 15.0
GLANCE_S = 0.02
LOOK_S = 1.0
ANSWER_MS = "2000"
OWN_ZOOKEEPER = "localhost"
"""Placeholder while settings are checked: the ZooKeeper that this command starts has no address yet."""


OPTIONS_INSTEAD = {"log.dirs": "--data", "log.dir": "--data", "zookeeper.connect": "--zookeeper"}
"""Settings that this command gives its brokers itself, with the options that say what it gives them."""


class BrokerChild:
    """A broker in a child process."""

    def __init__(self, number: int, command: list[str], log: Path) -> None:
        self.number = number
        self.command = command
        self.log = log
        self.address: str | None = None
        self._is_reported = False
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ottla", *command],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._output = b""

    def look(self) -> None:
        """Read the line that says where the broker listens. CommandError if it ended before."""
        assert self.process.stdout is not None
        self._output += self.process.stdout.read() or b""
        line, newline, _ = self._output.decode(errors="replace").partition("\n")
        if newline and " ready on " in line:
            self.address = line.split(" ready on ")[1].split()[0].rstrip(",")
            self.command[self.command.index("--port") + 1] = self.address.rpartition(":")[2]  # for the next start
        elif self.process.poll() is not None:
            raise CommandError(f"broker {self.number} did not start: {read_last_line(self.log)}")

    def report_end(self) -> None:
        """Say once that the broker has ended, and how to start it again."""
        if not self._is_reported and self.process.poll() is not None:
            self._is_reported = True
            again = shlex.join(["ottla", *self.command])
            print(f"broker {self.number} has ended ({self.log}); start it again with\n  {again}", flush=True)


def read_last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("ottla: ") if lines else "it wrote no message"


def up(options: argparse.Namespace) -> int:
    if not 1 <= options.brokers <= BROKERS_MAX:
        raise CommandError(f"--brokers: {options.brokers} is not between 1 and {BROKERS_MAX}", USAGE_ERROR)
    if options.port and options.port + options.brokers - 1 > PORT_MAX:
        last = options.port + options.brokers - 1
        raise CommandError(f"--port: {options.brokers} brokers need ports up to {last}, above {PORT_MAX}", USAGE_ERROR)
    data = Path(options.data or f"{find_data_directory(os.environ)}-cluster").expanduser().absolute()
    _check_settings(options, data)
    data.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    with closing(_lock(data)) as lock, Interruption() as interruption, ExitStack() as running:
        server: ZooKeeperServer | None = None
        try:
            zookeeper = options.zookeeper
            if not zookeeper:
                server = running.enter_context(_run_zookeeper(data, lock, interruption))
                zookeeper = server.address
            if options.restore or not options.zookeeper:
                _check_store(options, data, zookeeper)
            brokers = running.enter_context(_run_brokers(options, data, zookeeper, interruption))
            _wait_until_ready(brokers, interruption)
            bootstrap = ",".join(broker.address or "" for broker in brokers)
            print(
                f"{counted(len(brokers), 'broker')} ready on {bootstrap} "
                f"(ZooKeeper {zookeeper}, data {data}, {time.monotonic() - began_s:.2f} s)",
                flush=True,
            )
            _watch(brokers, server, bootstrap, interruption)
        except Interrupted:
            print("stopping", flush=True)
    return 0


def _check_settings(options: argparse.Namespace, data: Path) -> None:
    """CommandError if the brokers would refuse their settings: before ZooKeeper starts and files are made."""
    from ottla.cli.exposure import check_exposure
    from ottla.cli.settings import broker_config
    from ottla.cli.up import add_arguments

    for name in parse_pairs(options.settings, "--set"):
        if name in OPTIONS_INSTEAD:
            raise CommandError(f"--set: {name} is what {OPTIONS_INSTEAD[name]} is for", USAGE_ERROR)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    _, *arguments = _build_command(options, data, options.zookeeper or OWN_ZOOKEEPER, 1)
    check_exposure(broker_config(parser.parse_args(arguments), os.environ))


def _lock(data: Path) -> RealLock:
    try:
        return RealDisk().lock(str(data / LOCK))
    except BlockingIOError:
        raise CommandError(
            f"{data} is in use by another `ottla cluster up`, or by a ZooKeeper that one has left behind when it was "
            f"killed (pgrep -f {data}). Stop it, or give another directory with --data"
        ) from None


@contextmanager
def _run_zookeeper(data: Path, lock: RealLock, interruption: Interruption) -> "Iterator[ZooKeeperServer]":
    """Start a ZooKeeper server."""
    from ottla.cli.cluster.zookeeper_server import ZooKeeperServer

    print("ZooKeeper is starting", flush=True)
    server = ZooKeeperServer(data / "zookeeper", lock=lock.fileno())
    server.launch()
    try:
        with interruption.raising():
            server.wait_until_ready()
        yield server
    finally:
        server.stop()


def _check_store(options: argparse.Namespace, data: Path, zookeeper: str) -> None:
    """Have a ZooKeeper that has lost what the brokers know restored, or refuse it."""
    from ottla.cli.cluster.restore import check_store

    brokers = sorted(data.glob(f"{BROKER_DIRECTORY}*/"))
    check_store(brokers, zookeeper, parse_pairs(options.settings, "--set"), restore=options.restore)


@contextmanager
def _run_brokers(
    options: argparse.Namespace, data: Path, zookeeper: str, interruption: Interruption
) -> Iterator[list[BrokerChild]]:
    """Start the brokers beside each other, and stop them at the end."""
    brokers: list[BrokerChild] = []
    try:
        for number in range(1, options.brokers + 1):
            interruption.check()
            brokers.append(
                BrokerChild(number, _build_command(options, data, zookeeper, number), data / f"broker-{number}.log")
            )
        yield brokers
    finally:
        for broker in brokers:
            with suppress(ProcessLookupError):
                broker.process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S
        for broker in brokers:
            while broker.process.poll() is None and time.monotonic() < deadline_s and not interruption.impatient:
                time.sleep(GLANCE_S)
            broker.process.kill()
            broker.process.wait()
            assert broker.process.stdout is not None
            broker.process.stdout.close()


def _build_command(options: argparse.Namespace, data: Path, zookeeper: str, number: int) -> list[str]:
    port = options.port + number - 1 if options.port else 0
    given = parse_pairs(options.settings, "--set")
    factor = min(REPLICATION_FACTOR, options.brokers)
    settings = {"default.replication.factor": str(factor)}
    if factor < REPLICATION_FACTOR:  # groups and transactions would otherwise wait for the missing brokers for ever
        settings |= {
            "offsets.topic.replication.factor": str(factor),
            "transaction.state.log.replication.factor": str(factor),
            "transaction.state.log.min.isr": "1",
        }
    return [
        # With "=" also a value that begins with "-" belongs to its option.
        *("up", "--node-id", str(number), f"--zookeeper={zookeeper}"),
        *("--data", str(data / f"{BROKER_DIRECTORY}{number}"), f"--host={options.host}", "--port", str(port)),
        *(["--allow-anonymous-network"] if options.allow_anonymous_network else []),
        *(f"--set={name}={value}" for name, value in {**settings, **given}.items()),
    ]


def _wait_until_ready(brokers: Sequence[BrokerChild], interruption: Interruption) -> None:
    for broker in brokers:
        while broker.address is None:
            interruption.check()
            broker.look()
            if broker.address is None:
                time.sleep(GLANCE_S)


def _watch(
    brokers: Sequence[BrokerChild], zookeeper: "ZooKeeperServer | None", bootstrap: str, interruption: Interruption
) -> None:
    """Print a line whenever the state of the cluster changes, until Ctrl-C."""
    from ottla.client.client import Client

    settings = {"bootstrap.servers": bootstrap, "default.api.timeout.ms": ANSWER_MS, "request.timeout.ms": ANSWER_MS}
    shown = ""
    with closing(Client(settings)) as client:
        while True:
            for broker in brokers:
                broker.report_end()
            if zookeeper is not None and zookeeper.has_ended:
                _start_again(zookeeper, interruption)
            with interruption.raising():
                state = _describe_state(client)
                if state != shown:
                    print(f"{time.strftime('%H:%M:%S')} {state}", flush=True)
                    shown = state
                time.sleep(LOOK_S)


def _start_again(zookeeper: "ZooKeeperServer", interruption: Interruption) -> None:
    """Start ZooKeeper with the data that it has on disk. If that fails, say so once and let the brokers go on."""
    print(f"ZooKeeper has ended ({zookeeper.log}) and is started again", flush=True)
    try:
        zookeeper.launch()
        with interruption.raising():
            zookeeper.wait_until_ready()
    except (CommandError, OSError) as error:  # such as a full disk, or no memory for a process
        zookeeper.stop()
        print(
            f"ZooKeeper cannot be started again: {explain_error(error)}. The brokers go on without it, and changes "
            f"wait. When the cause is gone, stop this command with Ctrl-C and start it again",
            flush=True,
        )


def _describe_state(client: "Client") -> str:
    """Brokers, partitions and trouble in one line."""
    from ottla.client.connection import Unreachable
    from ottla.errors import KafkaError
    from ottla.wire.messages.metadata import MetadataRequest

    try:
        found = client.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    except (Unreachable, KafkaError) as error:
        client.close()
        return f"no broker answers: {error}"
    partitions = [partition for topic in found.topics for partition in topic.partitions]
    offline = sum(partition.leader_id < 0 for partition in partitions)
    behind = sum(len(partition.isr_nodes) < len(partition.replica_nodes) for partition in partitions)
    leaders = ", ".join(
        f"{broker.node_id} leads {sum(partition.leader_id == broker.node_id for partition in partitions)}"
        for broker in sorted(found.brokers, key=lambda broker: broker.node_id)
    )
    return (
        f"{counted(len(found.brokers), 'broker')}, {counted(len(partitions), 'partition')} ({leaders}), "
        f"{offline} offline, {behind} under-replicated"
    )
