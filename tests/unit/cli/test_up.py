"""`ottla up` as a process: what it prints, how it ends, and what it reports when it cannot start."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from ottla import __version__
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import run

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments]


def finished(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S)


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a broker and wait until it is ready. Returns the process and the line that it printed."""
    child = subprocess.Popen(
        command("up", *arguments), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


def refusal(*arguments: str) -> tuple[int, str]:
    """The exit status and the one line on stderr of a broker that cannot start. It is tried in this process."""
    ended = run(["up", "--log-level", "error", *arguments])
    assert ended.output == ""
    (line,) = ended.errors.splitlines()
    assert line.startswith("ottla: ")
    return ended.status, line


def test_version() -> None:
    assert finished("--version").stdout == f"ottla {__version__}\n"


def test_an_unknown_command_is_refused() -> None:
    ended = finished("fly")
    assert ended.returncode == 2
    assert "fly" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_prints_when_it_is_ready_and_locks_its_directory(tmp_path: Path) -> None:
    # One line has the address, the directory and the time it took. A connection is accepted then, memory is below 60
    # MB, and a second broker cannot use the directory. The test measures processor time, because the machine may be
    # busy.
    with running("--port", "0", "--data", str(tmp_path)) as (child, line):
        match = re.fullmatch(rf"ottla {__version__} ready on localhost:(\d+) \(data (\S+), (\d+\.\d\d) s\)", line)
        assert match is not None, line
        assert match[2] == str(tmp_path)
        started = psutil.Process(child.pid)
        assert started.cpu_times().user + started.cpu_times().system < 2
        socket.create_connection(("localhost", int(match[1]))).close()
        assert started.memory_info().rss < 60 << 20
        second_status, second_line = refusal("--port", "0", "--data", str(tmp_path))
        assert second_status == 1
        assert second_line == f"ottla: {tmp_path} is in use by another process"
        assert child.poll() is None


def test_it_stops_cleanly(tmp_path: Path) -> None:
    with running("--port", "0", "--data", str(tmp_path)) as (child, _):
        child.terminate()
        output, errors = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 0, errors
        assert output == ""
        assert "Traceback" not in errors


def test_an_interrupt_is_a_clean_stop_too(tmp_path: Path) -> None:
    with running("--port", "0", "--data", str(tmp_path)) as (child, _):
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE_S) == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = refusal("--host", "127.0.0.1", "--port", str(port), "--data", str(tmp_path))
    assert status == 1
    assert str(port) in line
    assert "--port" in line


def test_a_host_of_another_machine_is_named(tmp_path: Path) -> None:
    place = ["--host", "192.0.2.1", "--port", "0", "--data", str(tmp_path)]
    status, line = refusal(*place, "--allow-anonymous-network")
    assert status == 1
    assert "192.0.2.1" in line


def test_the_network_is_let_in_only_if_it_is_meant(tmp_path: Path) -> None:
    status, line = refusal("--host", "0.0.0.0", "--port", "0", "--data", str(tmp_path))
    assert status == 2
    assert "--allow-anonymous-network" in line


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    # A plain file is where the directory should be. This fails for root too, who may write anywhere.
    obstacle = tmp_path / "file"
    obstacle.write_text("")
    status, line = refusal("--port", "0", "--data", str(obstacle / "data"))
    assert status == 1
    assert str(obstacle) in line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--set", "num.partitionz=3"], "num.partitions"), (["--config", "/nowhere.properties"], "/nowhere.properties")],
)
def test_a_wrong_setting_is_named(arguments: list[str], named: str, tmp_path: Path) -> None:
    status, line = refusal("--data", str(tmp_path), *arguments)
    assert status == 2
    assert named in line


SLOW = """
import asyncio, sys
from ottla.cli import broker_process, main

class SlowBroker:
    ports = {"PLAINTEXT": 1}
    def __init__(self, config, directory, **options): ...
    async def start(self):
        self.failure = asyncio.get_running_loop().create_future()
    async def stop(self, deadline_s):
        print("draining", flush=True)
        await asyncio.Event().wait()

broker_process.Broker = SlowBroker
broker_process.STOP_DEADLINE_S = broker_process.STOP_GRACE_S = float(sys.argv[1])
sys.exit(main(["up", "--data", sys.argv[2]]))
"""


@contextmanager
def draining(deadline_s: float, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A broker that was told to stop and never finishes."""
    arguments = [sys.executable, "-c", SLOW, str(deadline_s), str(directory)]
    child = subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        try:
            assert "ready" in child.stdout.readline()
            child.terminate()
            assert child.stdout.readline() == "draining\n"
            yield child
        finally:
            child.kill()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with draining(60, tmp_path) as child:
        child.terminate()
        output, _ = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 128 + signal.SIGTERM
        assert output == ""


def test_two_signals_at_once_are_one(tmp_path: Path) -> None:
    # As timeout(1) sends them: both are there before the event loop looks.
    script = SLOW.replace("await asyncio.Event().wait()", "await asyncio.sleep(0.1)").replace(
        "    async def start(self):", "    async def start(self):\n        asyncio.get_running_loop().call_soon(twice)"
    )
    script = script.replace(
        "broker_process.Broker =",
        "def twice():\n    for _ in range(2): os.kill(os.getpid(), signal.SIGTERM)\n\nbroker_process.Broker =",
    )
    arguments = [sys.executable, "-c", f"import os, signal\n{script}", "60", str(tmp_path)]
    done = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr.count("stopping")) == (0, 1)
    assert "Traceback" not in done.stderr


def test_a_stop_that_misses_its_deadline_says_so(tmp_path: Path) -> None:
    with draining(0.1, tmp_path) as child:
        output, errors = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 1
        assert output == ""
        assert errors.splitlines()[-1].startswith("ottla: the broker did not stop within")


def test_metrics_have_a_port_of_their_own_and_a_log_line_names_it(tmp_path: Path) -> None:
    # The line names the address, whose page is text for Prometheus. A second broker reports which port is taken.
    with running("--port", "0", "--metrics-port", "0", "--data", str(tmp_path / "one")) as (child, line):
        match = re.search(r", metrics on (http://localhost:(\d+)/metrics)$", line)
        assert match is not None, line
        with urlopen(match[1], timeout=PATIENCE_S) as answer:
            assert b"\nottla_build_info{" in answer.read()
        status, refused = refusal("--port", "0", "--metrics-port", match[2], "--data", str(tmp_path / "two"))
        assert (status, refused.partition(": ")[2].partition(": ")[0]) == (1, "metrics.port")
        assert match[2] in refused
        child.send_signal(signal.SIGTERM)
        _, log = child.communicate(timeout=PATIENCE_S)
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO  ottla: stopping; ", log), log
