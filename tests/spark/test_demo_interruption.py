"""Ctrl-C in every phase of `ottla demo`: it ends with all its processes, and prints only that it has stopped."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE_S
from tests.samples import FULL
from tests.spark.early_python import create_early_python
from tests.spark.settings import QUICK_JAVA

COMMAND = [sys.executable, "-m", "ottla", "demo", "--rate", "1000", "--seconds", "2"]
PHASES = {
    "the broker starts": "",
    "the JVM starts": "waiting for its JVM",
    "the first batch": "waiting for the first batch",
    "the shop is open": "The shop is open",
    "the pipeline finishes": "The shop is closed",
    "the comparison": "Reading all results again",
    "everything is idle": "Ctrl-C stops the demo",
}
"""The text on the screen in each phase. The broker starts as soon as the demo has a child process."""
ALL = [(phase, whole_group) for phase in PHASES for whole_group in (False, True)]
SAMPLE = [("the broker starts", True), ("the first batch", False), ("the shop is open", True)]


class Demo:
    """A demo on a terminal, in a process group of its own, and the text that it has shown."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._terminal, its_end = os.openpty()
        self.child = subprocess.Popen(
            COMMAND, env=environment, stdin=its_end, stdout=its_end, stderr=its_end, process_group=0
        )
        os.close(its_end)
        self.shown = ""
        self.processes: set[psutil.Process] = set()

    def watch_until(self, condition: Callable[[], object]) -> None:
        """Read the screen, and remember every process that the demo has started."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.shown
            if select.select([self._terminal], [], [], 0.01)[0]:
                try:
                    self.shown += os.read(self._terminal, 65_536).decode(errors="replace")
                except OSError:  # the other end of the terminal is closed
                    return
            self.note_processes()

    def note_processes(self) -> None:
        try:
            self.processes |= set(psutil.Process(self.child.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return

    def close(self) -> None:
        self.note_processes()
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.child.kill()
        self.child.wait()
        os.close(self._terminal)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.driver.extraJavaOptions {QUICK_JAVA}\n")
    home = str(Path(__file__).parents[2] / "src")
    started = Demo(
        {
            **os.environ,
            "PYTHONPATH": home,
            "SPARK_CONF_DIR": str(tmp_path),
            "PYSPARK_PYTHON": create_early_python(tmp_path),
        }
    )
    try:
        yield started
    finally:
        started.close()


@pytest.mark.parametrize(("phase", "whole_group"), ALL if FULL else SAMPLE)
def test_ctrl_c_ends_the_demo_and_everything_it_started(phase: str, whole_group: bool, demo: Demo) -> None:
    # The signal goes to the demo alone, as with `kill`, or to its process group, as from a terminal. Broker, driver,
    # JVM and Python workers end, the directory is removed, and there is no traceback.
    text = PHASES[phase]
    demo.watch_until(lambda: text in demo.shown and demo.processes)
    demo.note_processes()
    began = time.monotonic()
    if whole_group:
        os.killpg(demo.child.pid, signal.SIGINT)
    else:
        demo.child.send_signal(signal.SIGINT)
    demo.watch_until(lambda: demo.child.poll() is not None)
    print(f"{phase}, {'group' if whole_group else 'demo only'}: {time.monotonic() - began:.2f} s")
    demo.watch_until(lambda: "Stopped" in demo.shown)
    assert demo.child.wait(PATIENCE_S) == 0, demo.shown
    assert "Stopped; the demo's data is gone." in demo.shown
    assert "Traceback" not in demo.shown
    _, alive = psutil.wait_procs(list(demo.processes), timeout=PATIENCE_S)
    assert alive == []
    if directory := re.search(r"\(data (\S+)/broker,", demo.shown):
        assert not Path(directory[1]).exists()
