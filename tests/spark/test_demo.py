"""`ottla demo` with its pipeline on Spark: the results are right, and it leaves no process behind, whenever it ends."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE_S
from tests.spark.settings import QUICK_JAVA

COMMAND = [sys.executable, "-m", "ottla", "demo", "--rate", "1000"]


@pytest.fixture
def environment(tmp_path: Path, early_python: str) -> dict[str, str]:
    """The environment of the demo, with settings that let the JVM start sooner, as a user may have set them."""
    (tmp_path / "spark-defaults.conf").write_text(f"spark.driver.extraJavaOptions {QUICK_JAVA}\n")
    home = str(Path(__file__).parents[2] / "src")
    return {
        **os.environ,
        "PYTHONPATH": home,
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_PYTHON": early_python,
    }


def test_without_a_terminal_it_checks_itself_and_ends(environment: dict[str, str]) -> None:
    # The pipeline's results equal the naive model. It prints a line now and then, and nothing on stderr.
    ended = subprocess.run(
        [*COMMAND, "--seconds", "1"], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "The results are what the shop's own books say" in ended.stdout
    assert re.search(r"[1-9]\d* too late", ended.stdout), "an order after its minute was closed belongs to the demo"
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    directory = re.search(r"\(data (\S+)/broker,", ended.stdout)
    assert directory is not None
    assert not Path(directory[1]).exists()


def test_it_can_be_ended_while_spark_starts(environment: dict[str, str]) -> None:
    # Broker, driver and JVM end with it, without a message of Spark or a traceback.
    child = subprocess.Popen(COMMAND, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with child:
        try:
            processes = started_processes(psutil.Process(child.pid))
            child.send_signal(signal.SIGINT)
            told, errors = child.communicate(timeout=PATIENCE_S)
        finally:
            for process in psutil.Process(child.pid).children(recursive=True) if child.poll() is None else ():
                process.kill()
            child.kill()
    assert (child.returncode, errors) == (0, "")
    assert "Stopped; the demo's data is gone." in told
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert alive == []


def started_processes(demo: psutil.Process) -> list[psutil.Process]:
    """Wait until the JVM has started. Returns the processes of the demo."""
    while True:
        processes = demo.children(recursive=True)
        if any("java" in process.name() for process in processes if process.is_running()):
            return processes
        time.sleep(0.05)
