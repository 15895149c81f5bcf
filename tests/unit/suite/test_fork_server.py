"""A program that is forked looks to others like one that was started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.fork_server import HAND_OVER, run_fork_server
from tests.patience import PATIENCE_S

IMPORTED = ("json",)
SCRIPT = """#!{python} -IS
import os, signal, socket, struct, sys
{hand_over}
hand_over("{path}", sys.argv[1:], [0, 1, 2])
"""


def run(words: Sequence[str], connections: Sequence[int]) -> int:
    """The program. It says what it was given, and ends as its first word says."""
    print(os.getpid(), os.getcwd(), os.environ["COLOUR"], *words[1:], input(), flush=True)
    if words[0] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if words[0] == "waiting":
        signal.pause()
    return int(words[0])


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with run_fork_server("tests.unit.suite.test_fork_server") as path:
        written = tmp_path_factory.mktemp("script") / "program"
        written.write_text(SCRIPT.format(python=sys.executable, hand_over=HAND_OVER, path=path))
        written.chmod(0o755)
        yield written


def start(script: Path, directory: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [script, *words],
        cwd=directory,
        env={**os.environ, "COLOUR": "red"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("word", "status"), [("0", 0), ("3", 3), ("killed", -signal.SIGKILL)])
def test_words_streams_directory_environment_and_status(script: Path, tmp_path: Path, word: str, status: int) -> None:
    with start(script, tmp_path, word, "a b", "") as program:
        printed, _ = program.communicate("said", timeout=PATIENCE_S)
    assert printed.split(" ", 1)[1] == f"{tmp_path} red a b  said\n"
    assert program.returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_gets_the_signals_of_its_script(script: Path, tmp_path: Path, number: signal.Signals) -> None:
    with start(script, tmp_path, "waiting") as program:
        assert program.stdin is not None and program.stdout is not None
        print("go", file=program.stdin, flush=True)
        forked = psutil.Process(int(program.stdout.readline().split()[0]))
        program.send_signal(number)
    assert program.returncode == -number
    forked.wait(PATIENCE_S)
