"""Workers in processes of their own, which a test starts, kills and pauses, and asks over REST."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

SESSION_MS = 6_000
SETTINGS = {
    "offset.storage.partitions": "5",
    "session.timeout.ms": str(SESSION_MS),
    "heartbeat.interval.ms": "500",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "listeners": "http://127.0.0.1:0",
    "spark.master": "local[4]",
    "spark.ui.enabled": "false",
}


class WorkerProcess:
    """In a process group of its own, so that its JVM and Python workers are killed and paused with it."""

    def __init__(self, bootstrap: str, directory: Path, group: str, name: str) -> None:
        topics = {f"{kind}.storage.topic": f"{group}-{kind}s" for kind in ("config", "offset", "status")}
        settings = {"bootstrap.servers": bootstrap, "group.id": group, **topics, **SETTINGS}
        file = directory / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        self.log = directory / f"{name}.log"
        command = [sys.executable, "-m", "ottla", "connect", "up", "--config", str(file)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self.port = 0

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.port = int(line.rpartition(":")[2])
        wait_until(lambda: self.ask("GET", "/health")[0] == 200)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def create_source(self, name: str, file: Path) -> None:
        """Lines of the file go to the topic that is named like the connector."""
        config = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(file), "topic": name}
        status, answer = self.ask("POST", "/connectors", {"name": name, "config": config})
        assert status == 201, answer

    def list_owners(self) -> dict[str, str]:
        """Which worker runs each connector whose task is RUNNING, as this worker knows."""
        _, found = self.ask("GET", "/connectors?expand=status")
        return {
            name: each["status"]["tasks"][0]["worker_id"]
            for name, each in found.items()
            if each["status"]["tasks"] and each["status"]["tasks"][0]["state"] == "RUNNING"
        }

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def run_workers(bootstrap: str, directory: Path, group: str, count: int) -> Iterator[list[WorkerProcess]]:
    """Each test has a group of its own, and topics that are named after it."""
    workers = [WorkerProcess(bootstrap, directory, group, f"worker-{number}") for number in range(count)]
    try:
        for worker in workers:
            worker.wait_until_ready()
        yield workers
    finally:
        for worker in workers:
            worker.close()


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.1)
