"""The demo's child processes: the broker with its web console, and the pipeline on Spark. Each ends with its block.

Each child leads a session of its own, so that Ctrl-C in the terminal reaches the demo only, which then ends the
children in order. Ending a child ends all processes of its session: the JVM and Spark's Python workers, some of which
have process groups of their own.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ottla.cli.command_error import CommandError
from ottla.cli.console_process import run_console
from ottla.cli.interruption import Interruption
from ottla.cli.ports import pick_port

BROKER_STOP_S = 15.0
PIPELINE_STOP_S = 20.0
INTERRUPTED_S = 0.1
"""After Ctrl-C a child gets this long to end by itself before it is killed: its data is thrown away anyway."""
ORPHANS_S = 5.0
"""A JVM takes a moment to notice that its driver has ended."""
GLANCE_S = 0.05
PIPE_BYTES = 1 << 16


@contextmanager
def broker(directory: str, interruption: Interruption) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a broker and its web console, and yield the broker with its address."""
    command = [sys.executable, "-m", "ottla", "up", "--port", "0", "--data", directory, "--log-level", "warning"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    try:
        with interruption.raising():
            line = child.stdout.readline().strip()
        if " ready on " not in line:
            raise CommandError("demo: the broker did not start")
        print(line, flush=True)
        address = line.split(" ready on ")[1].split()[0]
        port = pick_port()
        print(f"watch it in a browser: http://localhost:{port}/", flush=True)
        with run_console(address, port, silent=True):
            yield child, address
    finally:
        child.terminate()
        _end(child, BROKER_STOP_S, interruption)
        child.stdout.close()


class PipelineProcess:
    """The process of `ottla.cli.demo.pipeline`: its messages. Spark logs to a file."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child = child
        self._log = log
        self._rest = b""
        self._is_ready = False
        self.output: IO[bytes] = _pipe(child.stdout)
        self._input: IO[bytes] = _pipe(child.stdin)
        os.set_blocking(self.output.fileno(), False)

    def read_messages(self) -> list[dict[str, Any]]:
        """The messages since the last call. CommandError if the pipeline failed."""
        arrived = b""
        while chunk := self.output.read(PIPE_BYTES):
            arrived += chunk
        *lines, self._rest = (self._rest + arrived).split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            if "failure" in message:
                raise CommandError(f"demo: the pipeline failed: {_first_line(message['failure'])}")
        self._is_ready = self._is_ready or any("ready" in message for message in messages)
        if self._child.poll() is not None and not messages:
            raise CommandError(f"demo: the pipeline ended: {self._last_words()}")
        return messages

    def stop(self, interruption: Interruption) -> None:
        """Close its input, so that it stops its app and Spark. While it is starting it does not read its input, and
        after Ctrl-C stopping takes too long: then it gets a signal."""
        with suppress(BrokenPipeError):
            self._input.close()
        if not self._is_ready or interruption.number is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGTERM)
        _end(self._child, PIPELINE_STOP_S, interruption)
        self.output.close()

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return _first_line(lines[-1]) if lines else "it wrote no message"


@contextmanager
def pipeline(arguments: Sequence[str], log: Path, interruption: Interruption) -> Iterator[PipelineProcess]:
    """Start the pipeline. What Spark keeps in files goes to the directory of its log, which the demo removes."""
    command = [sys.executable, "-m", "ottla.cli.demo.pipeline", *arguments]
    files = str(log.parent)
    java = f'{os.environ.get("JDK_JAVA_OPTIONS", "")} -Djava.io.tmpdir="{files}"'
    with log.open("wb") as errors:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, "SPARK_LOCAL_DIRS": files, "TMPDIR": files, "JDK_JAVA_OPTIONS": java},
        )
    process = PipelineProcess(child, log)
    try:
        yield process
    finally:
        process.stop(interruption)


def _end(child: "subprocess.Popen[Any]", patience_s: float, interruption: Interruption) -> None:
    """Waits until a child that was asked to end, and all processes that it started, have ended. Kills them after the
    patience."""
    ended = _wait(lambda: child.poll() is not None, patience_s, interruption)
    if not ended or not _wait(lambda: not _session_members(child.pid), ORPHANS_S, interruption):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        for process_id in _session_members(child.pid):
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
    child.wait()


def _wait(condition: Callable[[], bool], patience_s: float, interruption: Interruption) -> bool:
    began_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began_s
        interrupted = interruption.number is not None and waited_s > INTERRUPTED_S
        if interrupted or interruption.impatient or waited_s > patience_s:
            return False
        time.sleep(GLANCE_S)
    return True


def _session_members(leader: int) -> list[int]:
    """The living processes of a session; where there is no /proc, at most those of the leader's group."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return [leader] if _is_group_alive(leader) else []
    return [int(name) for name in names if name.isdigit() and _session_of(name) == leader]


def _session_of(process: str) -> int | None:
    """The session of a process; None if it has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            state, _, _, session = file.read().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return int(session) if state not in "ZX" else None


def _is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else "without a reason"
