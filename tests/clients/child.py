"""`ottla up` as a process that can be killed, frozen and ended, and started again on the same port and directory."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ottla
from tests.patience import PATIENCE_S

HOST = "127.0.0.1"
SOURCE = Path(ottla.__file__).parents[1]


class OttlaUp:
    def __init__(self, data: Path, *settings: str, read_only: bool = False) -> None:
        self.data = data
        self._place = ["--read-only" if read_only else "--data", str(data)]
        self.log = data.with_name(data.name + ".stderr")
        # This socket is bound and never listens. It reserves the port: otherwise a client that tries to reach the
        # broker while it is down could get the port as its own, and connect to itself.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((HOST, 0))
        self.port: int = self._reserved.getsockname()[1]
        self._settings = [argument for setting in settings for argument in ("--set", setting)]
        self.process = self.spawn()
        try:
            self.await_ready()
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def spawn(self) -> subprocess.Popen[str]:
        """Start the process without waiting until it is ready."""
        command = [sys.executable, "-m", "ottla", "up", "--host", HOST, "--port", str(self.port)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, *self._place, *self._settings],
                env={**os.environ, "PYTHONPATH": str(SOURCE)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self.process

    def await_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert re.match(r"ottla \S+ ready on ", line), (line, self.log.read_text()[-3000:])

    def start(self) -> None:
        self.spawn()
        self.await_ready()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> int:
        """Send SIGTERM, and wait for the end. Returns the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        status = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def close(self) -> None:
        self.kill()
        self._reserved.close()


@contextmanager
def ottla_up(data: Path, *settings: str, read_only: bool = False) -> Iterator[OttlaUp]:
    broker = OttlaUp(data, *settings, read_only=read_only)
    try:
        yield broker
    finally:
        broker.close()
    # Clients retry after an unknown error, which hides that the broker failed.
    assert "Traceback" not in broker.log.read_text(), broker.log.read_text()[-3000:]
