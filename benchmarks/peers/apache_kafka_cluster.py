"""Three Apache Kafka brokers (KRaft), each of them a controller too."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.apache_kafka import CLUSTER_ID, VERSION, java_command, run_tool, share_one_jvm
from benchmarks.peers.broker_process import HOST, BrokerProcess
from benchmarks.peers.cluster_processes import INTERNAL_TOPICS, SIZE, ClusterProcesses
from ottla.cli.ports import pick_port

OPTIONS = ("-Xmx512M", "-Xms512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""Kafka's own, with half of its heap: three JVMs share the machine."""


class ApacheKafkaCluster(ClusterProcesses):
    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="apache-kafka-cluster-")
        root = Path(self._temporary.name)
        ports = {broker_id: (pick_port(), pick_port()) for broker_id in range(1, SIZE + 1)}
        brokers = {}
        with share_one_jvm():
            for broker_id in ports:
                directory = root / str(broker_id)
                directory.mkdir()
                properties = directory / "server.properties"
                lines = build_settings(broker_id, ports, directory / "data") | dict(settings or {})
                properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
                run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
                command = java_command("kafka.Kafka", str(properties), options=OPTIONS)
                name = f"Apache Kafka {VERSION}, broker {broker_id}"
                brokers[broker_id] = BrokerProcess(name, command, ports[broker_id][0], directory / "output.txt")
        super().__init__(f"Apache Kafka {VERSION}", brokers)

    def stop(self) -> None:
        super().stop()
        self._temporary.cleanup()


def build_settings(broker_id: int, ports: Mapping[int, tuple[int, int]], data: Path) -> dict[str, str]:
    """Kafka's defaults. `ports` are those of each broker and its controller."""
    port, controller_port = ports[broker_id]
    voters = ",".join(f"{voter}@{HOST}:{its_controller}" for voter, (_, its_controller) in ports.items())
    return {
        "process.roles": "broker,controller",
        "node.id": str(broker_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "group.initial.rebalance.delay.ms": "0",
        **INTERNAL_TOPICS,
    }
