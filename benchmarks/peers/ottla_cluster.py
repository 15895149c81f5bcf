"""Three Ottla brokers, started the way a user starts them, and the ZooKeeper server they need."""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.broker_process import HOST, BrokerProcess
from benchmarks.peers.cluster_processes import INTERNAL_TOPICS, SIZE, ClusterProcesses
from benchmarks.peers.ottla_broker import build_environment
from ottla.cli.cluster.zookeeper_server import ZooKeeperServer
from ottla.cli.ports import pick_port


class OttlaCluster(ClusterProcesses):
    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="ottla-cluster-")
        root = Path(self._temporary.name)
        self._zookeeper = ZooKeeperServer(root / "zookeeper")
        given = INTERNAL_TOPICS | dict(settings or {})
        brokers = {}
        for broker_id in range(1, SIZE + 1):
            port = pick_port()
            command = build_command(broker_id, port, root / str(broker_id), self._zookeeper.address, given)
            name = f"Ottla, broker {broker_id}"
            output = root / f"{broker_id}.txt"
            brokers[broker_id] = BrokerProcess(name, command, port, output, build_environment())
        super().__init__("Ottla", brokers)

    def start(self) -> None:
        self._zookeeper.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self._zookeeper.kill()
        self._temporary.cleanup()

    def process_ids(self) -> list[int]:
        return [*super().process_ids(), self._zookeeper.pid or 0]


def build_command(broker_id: int, port: int, data: Path, zookeeper: str, settings: Mapping[str, str]) -> list[str]:
    """`ottla up` for a broker of a cluster."""
    command = [sys.executable, "-m", "ottla", "up", "--data", str(data), "--host", HOST, "--port", str(port)]
    command += ["--node-id", str(broker_id), "--zookeeper", zookeeper]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return command
