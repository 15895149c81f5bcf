"""A broker as a child process: start it until it answers, read its CPU and memory, stop it by its process id."""

import contextlib
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

HOST = "127.0.0.1"
API_VERSIONS_KEY = 18
PROBE_PAUSE_SECONDS = 0.002
PROBE_ANSWER_SECONDS = 5.0


class StartFailure(Exception):
    """The broker ended, or did not answer in time. The message has the last lines that the broker printed."""


@dataclass(frozen=True)
class StartTimes:
    """Seconds since the process was created."""

    accepted: float
    answered: float


@dataclass(frozen=True)
class Usage:
    """CPU time and memory of the broker and its child processes, so far."""

    cpu_seconds: float
    resident_bytes: int


def probe(port: int) -> float | None:
    """Send ApiVersions. Returns the monotonic time at which the connection was accepted, or None without an answer."""
    request = struct.pack(">hhih", API_VERSIONS_KEY, 0, 1, -1)
    try:
        with socket.create_connection((HOST, port), timeout=PROBE_ANSWER_SECONDS) as connection:
            accepted = time.monotonic()
            connection.sendall(struct.pack(">i", len(request)) + request)
            return accepted if len(connection.recv(4, socket.MSG_WAITALL)) == 4 else None
    except OSError:
        return None


def read_usage(process_id: int) -> Usage:
    """Of a process and its children, also of those that have ended, such as Ottla's cleaner."""
    root = psutil.Process(process_id)
    ended = root.cpu_times()
    cpu_seconds: float = ended.children_user + ended.children_system
    resident_bytes = 0
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            cpu_seconds += times.user + times.system
            resident_bytes += process.memory_info().rss
    return Usage(cpu_seconds, resident_bytes)


class BrokerProcess:
    """One broker process that listens on `port`. Everything it prints goes to `output`."""

    def __init__(
        self, name: str, command: Sequence[str], port: int, output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.port = port
        self.output = output
        self.environment = dict(environment) if environment is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def process_id(self) -> int:
        return self._running().pid

    def start(self, timeout_seconds: float = 300) -> StartTimes:
        return self.await_answer(self.spawn(), timeout_seconds)

    def spawn(self) -> float:
        """Start the process, and do not wait for it. Returns the monotonic time of the start."""
        with self.output.open("ab") as output:
            began = time.monotonic()
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=self.environment
            )
        return began

    def await_answer(self, began: float, timeout_seconds: float = 300) -> StartTimes:
        """Wait until the broker that was spawned at `began` answers a request."""
        while time.monotonic() - began < timeout_seconds:
            process = self._running()
            if process.poll() is not None:
                raise StartFailure(f"{self.name} ended with status {process.returncode}: {self._last_lines()}")
            if (accepted := probe(self.port)) is not None:
                return StartTimes(accepted - began, time.monotonic() - began)
            time.sleep(PROBE_PAUSE_SECONDS)
        self.stop(timeout_seconds=5)
        raise StartFailure(f"{self.name} did not answer within {timeout_seconds:g} s: {self._last_lines()}")

    def send_signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def kill(self) -> None:
        """kill -9. Its data directory stays, so that `start` starts it again."""
        process = self._running()
        process.kill()
        process.wait()

    def usage(self) -> Usage:
        return read_usage(self.process_id)

    def stop(self, timeout_seconds: float = 30) -> None:
        """Terminate the process, and kill it after the timeout. Does nothing when it has ended already."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> "BrokerProcess":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process

    def _last_lines(self, count: int = 12) -> str:
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-count:])
