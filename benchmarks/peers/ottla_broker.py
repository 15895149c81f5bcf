"""Ottla as a child process, started the way a user starts it."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import PROJECT
from benchmarks.peers.broker_process import HOST, BrokerProcess, free_port

SOURCE = PROJECT / "src"


def child_environment() -> dict[str, str]:
    """This source, with its byte code kept as an installation would have it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCE), environment.get("PYTHONPATH"))))
    return environment


class OttlaBroker(BrokerProcess):
    """`ottla up` on a free port of the loopback address, in a directory that goes when the broker stops.

    `interpreter` are the words before `-m ottla`, for a run under a profiler.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, interpreter: tuple[str, ...] = ()) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="ottla-")
        self.directory = Path(self._temporary.name)
        port = free_port()
        command = [
            sys.executable,
            *interpreter,
            "-m",
            "ottla",
            "up",
            "--data",
            str(self.directory / "data"),
            "--host",
            HOST,
            "--port",
            str(port),
        ]
        for name, value in (settings or {}).items():
            command += ["--set", f"{name}={value}"]
        super().__init__("Ottla", command, port, self.directory / "output.txt", child_environment())

    def stop(self, timeout_seconds: float = 30) -> None:
        super().stop(timeout_seconds)
        self._temporary.cleanup()

    def __enter__(self) -> "OttlaBroker":
        super().__enter__()
        return self
