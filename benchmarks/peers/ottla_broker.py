"""Ottla as a child process, started the way a user starts it."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import PROJECT
from benchmarks.peers.broker_process import HOST, BrokerProcess
from ottla.cli.ports import pick_port


def build_environment(checkout: Path = PROJECT) -> dict[str, str]:
    """Environment variables with which Python imports the Ottla of `checkout`, and keeps its byte code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(checkout / "src"), environment.get("PYTHONPATH"))))
    return environment


class OttlaBroker(BrokerProcess):
    """`ottla up` on a free port of the loopback address. Its data directory is removed when the broker stops.

    `interpreter` are arguments of Python before `-m ottla`, to run the broker under a profiler. `checkout` is the
    directory of the Ottla to run, if it is another one than this.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        interpreter: tuple[str, ...] = (),
        checkout: Path = PROJECT,
        name: str = "Ottla",
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="ottla-")
        self.directory = Path(self._temporary.name)
        port = pick_port()
        address = ["--host", HOST, "--port", str(port)]
        command = [sys.executable, *interpreter, "-m", "ottla", "up", "--data", str(self.directory / "data"), *address]
        for setting, value in (settings or {}).items():
            command += ["--set", f"{setting}={value}"]
        super().__init__(name, command, port, self.directory / "output.txt", build_environment(checkout))

    def stop(self, timeout_seconds: float = 30) -> None:
        super().stop(timeout_seconds)
        self._temporary.cleanup()

    def __enter__(self) -> "OttlaBroker":
        super().__enter__()
        return self
