"""The process of an app that a test starts, kills and starts again."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from threading import Thread

import psutil

from tests.patience import PATIENCE_S
from tests.spark.killing import HOME, kill


class DriverProcess:
    def __init__(self, module: str, directory: Path, *arguments: str) -> None:
        """The module is run with the arguments, at a terminal. What it prints goes to a file in the directory."""
        self._command = [sys.executable, "-m", module, *arguments]
        self._log = directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: Thread | None = None

    def start(self) -> None:
        """Start the app, unless it runs."""
        if self._process is not None:
            return
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HOME / "src"), str(HOME)))}
        terminal, end = pty.openpty()
        self._process = subprocess.Popen(self._command, env=environment, stdout=end, stderr=end, start_new_session=True)
        os.close(end)
        self._reader = Thread(target=self._copy_output, args=(terminal,))
        self._reader.start()

    def _copy_output(self, terminal: int) -> None:
        with self._log.open("ab", buffering=0) as log:
            while True:
                try:
                    printed = os.read(terminal, 1 << 16)
                except OSError:  # the last process that had the terminal has ended
                    break
                if not printed:
                    break
                log.write(printed)
        os.close(terminal)

    @property
    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the driver and all its children at once: JVM, Python workers and state servers."""
        if self._process is not None:
            kill(psutil.Process(self._process.pid))
            self.wait()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait until the app has ended. Returns its status."""
        assert self._process is not None
        assert self._reader is not None
        status = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._process = None
        return status

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.printed[-3000:]
