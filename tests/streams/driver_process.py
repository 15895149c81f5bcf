"""The process of an app that a test starts, kills and starts again."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.patience import PATIENCE_S
from tests.spark.killing import HOME, kill


class DriverProcess:
    def __init__(self, module: str, directory: Path, *arguments: str) -> None:
        """The module is run with the arguments. What it prints goes to a file in the directory."""
        self._command = [sys.executable, "-m", module, *arguments]
        self._log = directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the app, unless it runs."""
        if self._process is not None:
            return
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HOME / "src"), str(HOME)))}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """Kill the driver and all its children at once: JVM, Python workers and state servers."""
        if self._process is not None:
            kill(psutil.Process(self._process.pid))
            self._process.wait(PATIENCE_S)
            self._process = None

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(PATIENCE_S)
        self._process = None
        return status

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]
