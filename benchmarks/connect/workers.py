"""A standalone worker of either side as a child process. Both get the same properties, and connectors over REST."""

import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from benchmarks.loads.topics import Mismatch
from benchmarks.peers import apache_kafka as peer
from benchmarks.peers.broker_process import Usage, read_usage
from benchmarks.peers.ottla_broker import build_environment
from ottla.cli.ports import pick_port

PAUSE_SECONDS = 0.02
DEADLINE_SECONDS = 300.0
HEAP = "-Xmx1G"
_numbers = itertools.count()


class RunningWorker:
    """Side 0 is Ottla, 1 is Apache Kafka Connect. It answers when the object is entered."""

    def __init__(self, side: int, bootstrap: str, more_jars: Sequence[Path] = ()) -> None:
        """`more_jars` are directories of jars with connectors that are not Kafka's own."""
        self.name = f"worker-{side}-{next(_numbers)}"
        self.port = pick_port()
        self._temporary = tempfile.TemporaryDirectory(prefix="connect-benchmark-", ignore_cleanup_errors=True)
        self.directory = Path(self._temporary.name)
        text = "org.apache.kafka.connect.storage.StringConverter"
        properties = {
            "bootstrap.servers": bootstrap,
            "listeners": f"http://127.0.0.1:{self.port}",
            "key.converter": text,
            "value.converter": text,
            "offset.storage.file.filename": str(self.directory / "offsets"),
            "offset.storage.topic": f"{self.name}-offsets",
            "offset.flush.interval.ms": "1000",
        }
        file = self.directory / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
        self._printed = self.directory / "printed.txt"
        with self._printed.open("wb") as printed:
            self.began = time.perf_counter()
            self._process = subprocess.Popen(
                _build_command(side, str(file), more_jars),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=build_environment(),
            )

    def create(self, name: str, config: Mapping[str, str]) -> None:
        self.ask("POST", "/connectors", {"name": name, "config": dict(config)})

    def ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def wait_until(self, is_done: Callable[[], bool], what: str, pause_seconds: float = PAUSE_SECONDS) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_done():
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = "\n".join(self._printed.read_text(errors="replace").splitlines()[-12:])
                raise Mismatch(f"{self.name}: {what}, and the worker has ended or is too slow: {last}")
            time.sleep(pause_seconds)

    @property
    def usage(self) -> Usage:
        return read_usage(self._process.pid)

    @property
    def memory_bytes(self) -> int:
        """Of all processes of the worker. Pages that they share count once: Spark forks its Python workers."""
        root = psutil.Process(self._process.pid)
        found = 0
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += process.memory_full_info().pss
        return found

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.ask("GET", "/connectors") == [])
        return False

    def __enter__(self) -> "RunningWorker":
        self.wait_until(self._answers, "it does not answer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._temporary.cleanup()


def wait_for(is_done: Callable[[], bool], has_failed: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_done():
        if has_failed() or time.monotonic() > deadline:
            raise Mismatch("a program of the comparison has ended or is too slow")
        time.sleep(PAUSE_SECONDS)


def _build_command(side: int, properties: str, more_jars: Sequence[Path]) -> list[str]:
    if side == 0:
        return [sys.executable, "-m", "ottla", "connect", "up", "--config", properties, "--master", "local[2]"]
    program = "org.apache.kafka.connect.cli.ConnectStandalone"
    return peer.java_command(program, properties, options=(HEAP,), more_jars=more_jars)
