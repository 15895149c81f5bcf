"""The demo's child processes: the broker, and the pipeline on Spark. Each ends with the block that started it.

They are in sessions of their own, or Ctrl-C would reach them before us, and in no order.
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
from ottla.cli.demo.interruption import Interruption

BROKER_STOP_S = 15.0
PIPELINE_STOP_S = 20.0
ORPHANS_S = 5.0
"""A JVM takes a moment to notice that its driver has ended."""
GLANCE_S = 0.05
PIPE_BYTES = 1 << 16


@contextmanager
def broker(directory: str, interruption: Interruption) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker, and its address."""
    command = [sys.executable, "-m", "ottla", "up", "--port", "0", "--data", directory, "--log-level", "warning"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    try:
        line = child.stdout.readline().strip()
        if " ready on " not in line:
            raise CommandError("demo: the broker did not start")
        print(line, flush=True)
        yield child, line.split(" ready on ")[1].split()[0]
    finally:
        child.terminate()
        _end(child, BROKER_STOP_S, interruption)
        child.stdout.close()


class PipelineProcess:
    """`ottla.cli.demo.pipeline`: what it tells, and what it is told. Everything Spark logs goes to a file."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child = child
        self._log = log
        self._rest = b""
        self._is_ready = False
        self.output: IO[bytes] = _pipe(child.stdout)
        self._input: IO[bytes] = _pipe(child.stdin)
        os.set_blocking(self.output.fileno(), False)

    def told(self) -> list[dict[str, Any]]:
        """What it has told since it was asked last. CommandError: the pipeline failed."""
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

    def finish(self) -> None:
        """Ask it to work off everything that is there; it tells when it has."""
        self._tell(b"finish\n")

    def stop(self, interruption: Interruption) -> None:
        """It stops its queries and Spark. One that is still starting does not listen yet, and is just ended."""
        with suppress(BrokenPipeError):
            self._input.close()
        if not self._is_ready:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGTERM)
        _end(self._child, PIPELINE_STOP_S, interruption)
        self.output.close()

    def _tell(self, line: bytes) -> None:
        with suppress(BrokenPipeError):  # it has ended, and `told` says so
            self._input.write(line)
            self._input.flush()

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return _first_line(lines[-1]) if lines else "it said nothing"


@contextmanager
def pipeline(arguments: Sequence[str], log: Path, interruption: Interruption) -> Iterator[PipelineProcess]:
    command = [sys.executable, "-m", "ottla.cli.demo.pipeline", *arguments]
    with log.open("wb") as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    process = PipelineProcess(child, log)
    try:
        yield process
    finally:
        process.stop(interruption)


def _end(child: "subprocess.Popen[Any]", patience_s: float, interruption: Interruption) -> None:
    """Wait for a child that was asked to end, and for what it has started. Who takes too long is killed."""
    ended = _wait(lambda: child.poll() is not None, patience_s, interruption)
    if not ended or not _wait(lambda: not _is_group_alive(child.pid), ORPHANS_S, interruption):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _wait(condition: Callable[[], bool], patience_s: float, interruption: Interruption) -> bool:
    deadline_s = time.monotonic() + patience_s
    while not condition():
        if interruption.impatient or time.monotonic() > deadline_s:
            return False
        time.sleep(GLANCE_S)
    return True


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
    return lines[0] if lines else "for no reason that it told"
