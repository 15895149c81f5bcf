"""Apache Kafka Connect as a child process, on a broker of ours, to compare with."""

import http.client
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers import apache_kafka as peer
from ottla.cli.ports import pick_port
from tests.patience import PATIENCE_S

JVM = (*peer.SHORT_LIVED_JVM, "-Xmx384M")
CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


def make_properties(bootstrap: str, port: int, group: str) -> dict[str, str]:
    """Of a distributed worker, Apache's or ours, with topics of its own."""
    topics = {f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")}
    counts = {f"{kind}.storage.partitions": "1" for kind in ("offset", "status")}
    replicas = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "listeners": f"http://127.0.0.1:{port}",
        "offset.flush.interval.ms": "100",
        **CONVERTERS,
        **topics,
        **counts,
        **replicas,
    }


@contextmanager
def run_apache_connect(bootstrap: str, directory: Path) -> Iterator[int]:
    """The port of its REST server, which answers."""
    port = pick_port()
    properties = directory / "worker.properties"
    given = make_properties(bootstrap, port, "apache")
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    command = peer.java_command("org.apache.kafka.connect.cli.ConnectDistributed", str(properties), options=JVM)
    with (directory / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            await_health(port, process)
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def await_health(port: int, process: "subprocess.Popen[bytes] | None" = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, "Apache Kafka Connect has ended"
        try:
            if send(port, "GET", "/health")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)


def send(
    port: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Status, document or text, and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        text = answer.read().decode()
        found = {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text), found
    except ValueError:
        return answer.status, text, found
