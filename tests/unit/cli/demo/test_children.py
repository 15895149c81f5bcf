"""The demo's pipeline as a child process: a failure is one line, and a child that does not end is killed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.demo import children
from ottla.cli.demo.children import PipelineProcess
from ottla.cli.interruption import Interruption

DEAF = "import sys, time; print('{\"ready\": true}', flush=True); time.sleep(600)"


@contextmanager
def child(program: str, directory: Path) -> Iterator[PipelineProcess]:
    log = directory / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    pipeline = PipelineProcess(process, log)
    try:
        yield pipeline
    finally:
        pipeline.stop(Interruption())


def read_first_message(pipeline: PipelineProcess) -> dict[str, object]:
    while not (messages := pipeline.read_messages()):
        time.sleep(0.01)
    return messages[0]


def test_messages_of_a_pipeline_arrive(tmp_path: Path) -> None:
    said = 'import sys\nprint(\'{"step": "one"}\', flush=True)\nsys.stdin.read()'
    with child(said, tmp_path) as pipeline:
        assert read_first_message(pipeline) == {"step": "one"}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('print(\'{"failure": "it broke\\\\n\\\\tat line 7"}\')', "demo: the pipeline failed: it broke"),
        ("import sys; sys.exit('no memory')", "demo: the pipeline ended: no memory"),
        ("", "demo: the pipeline ended: it wrote no message"),
    ],
)
def test_the_failure_of_a_pipeline_is_one_line(program: str, said: str, tmp_path: Path) -> None:
    with child(program, tmp_path) as pipeline, pytest.raises(CommandError) as refusal:
        while True:
            pipeline.read_messages()
            time.sleep(0.01)
    assert str(refusal.value) == said


def test_a_pipeline_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The end of its input tells the child to end, not a signal. A child that ignores it is killed.
    monkeypatch.setattr(children, "PIPELINE_STOP_S", 0.1)
    with child(DEAF, tmp_path) as pipeline:
        read_first_message(pipeline)
        pid = pipeline._child.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
