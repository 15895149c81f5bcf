"""A cluster of real processes under test: brokers started with `ottla up`, ZooKeeper, and links that can be cut.

Clients connect to the brokers directly. Brokers reach each other and ZooKeeper through links only. Everything can be
killed, paused, cut off, and started again with its data and on its ports.
"""

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

import ottla
from ottla.cli.cluster.zookeeper_server import ZooKeeperServer, build_ensemble, start_ensemble
from ottla.cluster import znodes
from ottla.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.links import HOST, Entrance, Links
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient

SOURCE = Path(ottla.__file__).parents[1]
BROKER_IDS = (1, 2, 3)
TICK_MS = 500
SESSION_MS = 3000
POLL_S = 0.05
DISK_BYTES = 256 << 20
FILLER = "filler"
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": str(PATIENCE_MS),
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "4000",
    "leader.imbalance.check.interval.seconds": "5",
}

Partitions = dict[int, tuple[int, tuple[int, ...]]]
"""Leader and replicas in sync of each partition of a topic."""


class OttlaNode:
    """One broker of the cluster as a process. Its log goes to a file beside its data directory."""

    def __init__(self, broker_id: int, directory: Path, links: Links, directories: int = 1) -> None:
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        self.data = directory / self.name
        self.directories = [self.data, *(directory / f"{self.name}-data-{n}" for n in range(2, directories + 1))]
        self.log = directory / f"{self.name}.stderr"
        # Bound and never listening: nobody else gets the ports while the broker is down.
        self._reserved = [reserve_port() for _ in range(2)]
        self.port, internal_port = (each.getsockname()[1] for each in self._reserved)
        self.entrance: Entrance = links.add(self.name, internal_port)
        self.listeners = {
            "listeners": f"CLIENT://{HOST}:{self.port},INTERNAL://{HOST}:{internal_port}",
            "advertised.listeners": f"CLIENT://{HOST}:{self.port},INTERNAL://{HOST}:{self.entrance.port}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
        self.zookeeper = ""
        self.settings: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.is_paused = False

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def spawn(self) -> None:
        """Start the process, and do not wait for it."""
        data = ",".join(map(str, self.directories))
        command = [sys.executable, "-m", "ottla", "up", "--data", data, "--node-id", str(self.id)]
        command += ["--zookeeper", self.zookeeper]
        for name, value in {**self.listeners, **self.settings}.items():
            command += ["--set", f"{name}={value}"]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(SOURCE)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.entrance.open()

    def await_answer(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self.process is not None and self.process.poll() is None, self.read_log()[-3000:]
            assert time.monotonic() < deadline, f"{self.name} does not answer: {self.read_log()[-3000:]}"
            time.sleep(POLL_S)

    def start(self) -> None:
        self.spawn()
        self.await_answer()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def empty(self) -> None:
        """Remove everything in the data directory, as if the disk had been replaced."""
        for entry in self.data.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def read_log(self) -> str:
        return self.log.read_text(errors="replace")

    def close(self) -> None:
        if self.is_up:
            if self.is_paused:
                self.resume()
            self.kill()
        for each in self._reserved:
            each.close()

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        if number is signal.SIGKILL:
            self.entrance.close()  # the port of a process that is gone refuses connections
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        self.entrance.close()
        self.is_paused = False
        return status

    def _answers(self) -> bool:
        try:
            with RawClient(HOST, self.port, timeout_s=5) as client:
                client.request(MetadataRequest(topics=[]), 12)
                return True
        except OSError:
            return False


class OttlaNodes:
    """The whole cluster. `wait` and `find` methods ask the brokers that are up."""

    def __init__(
        self,
        directory: Path,
        zookeepers: int = 1,
        settings: Mapping[str, str] | None = None,
        brokers: int = len(BROKER_IDS),
        directories: int = 1,
    ) -> None:
        self.directory = directory
        self.has_disks = False
        """Whether each data directory is a small disk of its own, which can be filled."""
        self.links = Links()
        self.zookeepers: list[ZooKeeperServer] = build_ensemble(
            directory, zookeepers, tick_ms=TICK_MS, is_durable=False
        )
        self.brokers = {
            broker_id: OttlaNode(broker_id, directory, self.links, directories) for broker_id in range(1, brokers + 1)
        }
        for broker in self.brokers.values():
            entrances = [self.links.add("zookeeper", server.port, broker.name) for server in self.zookeepers]
            for entrance in entrances:
                entrance.open()
            broker.zookeeper = ",".join(f"{HOST}:{entrance.port}" for entrance in entrances)
            broker.settings = {**SETTINGS, **(settings or {})}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers.values())

    def start(self) -> None:
        start_ensemble(self.zookeepers)
        for broker in self.brokers.values():
            broker.spawn()
        for broker in self.brokers.values():
            broker.await_answer()
        self.wait_for(lambda: len(self.find_alive()) == len(self.brokers), "all brokers are registered")

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()
        for server in self.zookeepers:
            server.kill()
        self.links.close()

    def read_logs(self) -> str:
        return "\n".join(f"--- {broker.name}\n{broker.read_log()[-4000:]}" for broker in self.brokers.values())

    # --- cuts ---

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        """Cut `one` off from `other`: nothing that it sends arrives; with `both` nothing from the other either."""
        self.links.cut(one, other)
        if both:
            self.links.cut(other, one)

    def heal(self, one: str, other: str) -> None:
        self.links.heal(one, other)
        self.links.heal(other, one)

    # --- what the cluster says ---

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s\n{self.read_logs()}"
            time.sleep(POLL_S)

    def ask(self) -> Iterator[RawClient]:
        """A client for each broker that is up and not paused."""
        for broker in self.brokers.values():
            if broker.is_up and not broker.is_paused:
                with contextlib.suppress(OSError), RawClient(HOST, broker.port, timeout_s=10) as client:
                    yield client

    def find_alive(self) -> list[int]:
        for client in self.ask():
            return sorted(broker.node_id for broker in client.request(MetadataRequest(topics=[]), 12).brokers)
        return []

    def find_partitions(self, topic: str) -> Partitions:
        """The partitions as the first broker that answers knows them."""
        return next(self.ask_partitions(topic), {})

    def ask_partitions(self, topic: str) -> Iterator[Partitions]:
        """The partitions as each broker knows them."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        for client in self.ask():
            (found,) = client.request(request, 12).topics
            yield {
                partition.partition_index: (partition.leader_id, tuple(partition.isr_nodes))
                for partition in found.partitions
            }

    def find_coordinator(self, key: str, kind: int) -> int | None:
        """The broker that coordinates a group (kind 0) or a transactional id (kind 1)."""
        for client in self.ask():
            (found,) = client.request(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 4).coordinators
            if found.error_code == ErrorCode.NONE:
                return int(found.node_id)
        return None

    def find_controller(self) -> int | None:
        """The broker that is elected controller, as ZooKeeper has it; None if nobody is, or ZooKeeper is away."""
        client = KazooClient(self.zookeepers[0].address, timeout=5)
        try:
            client.start(5)
            names = sorted(client.get_children(znodes.CONTROLLER), key=int)
            return int(client.get(f"{znodes.CONTROLLER}/{names[-1]}")[0]) if names else None
        except (KazooException, KazooTimeoutError):
            return None
        finally:
            client.stop()
            client.close()

    def wait_in_sync(self, topic: str, replicas: int = len(BROKER_IDS)) -> None:
        """Every partition has a leader and so many replicas in sync, and every broker that is up knows it."""

        def is_complete() -> bool:
            views = list(self.ask_partitions(topic))
            return bool(views) and all(
                bool(found) and all(leader in self.brokers and len(isr) == replicas for leader, isr in found.values())
                for found in views
            )

        self.wait_for(is_complete, f"{replicas} replicas of {topic} are in sync")


@contextmanager
def run_nodes(
    directory: Path,
    zookeepers: int = 1,
    settings: Mapping[str, str] | None = None,
    disks: bool = False,
    brokers: int = len(BROKER_IDS),
    directories: int = 1,
) -> Iterator[OttlaNodes]:
    """A running cluster. With `disks`, each data directory is a small disk of its own where that is possible.
    `directories`: data directories of each broker."""
    directory.mkdir(parents=True, exist_ok=True)
    nodes = OttlaNodes(directory, zookeepers, settings, brokers, directories)
    wanted = [each for broker in nodes.brokers.values() for each in broker.directories]
    mounted = [each for each in wanted if disks and mount_disk(each)]
    nodes.has_disks = len(mounted) == len(wanted)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()
        for disk in mounted:
            subprocess.run(["umount", str(disk)], check=True, capture_output=True)
    for broker in nodes.brokers.values():
        # Clients ask again after an unknown error, and so hide that a broker stumbled.
        assert "Traceback" not in broker.read_log(), broker.read_log()[-5000:]


def reserve_port() -> socket.socket:
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((HOST, 0))
    return reserved


def mount_disk(directory: Path) -> bool:
    """Give a directory a small disk of its own. False without the right to mount one."""
    directory.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True).returncode == 0


def fill_disk(directory: Path) -> None:
    with (directory / FILLER).open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    filler.write(b"x" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def free_disk(directory: Path) -> None:
    (directory / FILLER).unlink(missing_ok=True)
