"""The demo's pipeline as a child: its failures are one line, and a child that does not end is ended."""

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
from ottla.cli.demo.interruption import Interruption

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


def first_told(pipeline: PipelineProcess) -> dict[str, object]:
    while not (messages := pipeline.read_messages()):
        time.sleep(0.01)
    return messages[0]


def test_what_a_pipeline_tells_is_heard_and_what_it_is_told_arrives(tmp_path: Path) -> None:
    echo = "import sys\nfor line in sys.stdin: print('{\"heard\": \"' + line.strip() + '\"}', flush=True)"
    with child(echo, tmp_path) as pipeline:
        assert pipeline.read_messages() == []
        pipeline.finish()
        assert first_told(pipeline) == {"heard": "finish"}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('print(\'{"failure": "it broke\\\\n\\\\tat line 7"}\')', "demo: the pipeline failed: it broke"),
        ("import sys; sys.exit('no memory')", "demo: the pipeline ended: no memory"),
        ("", "demo: the pipeline ended: it wrote no message"),
    ],
)
def test_a_pipeline_that_fails_is_one_line(program: str, said: str, tmp_path: Path) -> None:
    with child(program, tmp_path) as pipeline, pytest.raises(CommandError) as refusal:
        while True:
            pipeline.read_messages()
            time.sleep(0.01)
    assert str(refusal.value) == said


def test_a_pipeline_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is not told so by a signal, but by the end of its input; who does not hear that is killed.
    monkeypatch.setattr(children, "PIPELINE_STOP_S", 0.1)
    with child(DEAF, tmp_path) as pipeline:
        first_told(pipeline)
        pid = pipeline._child.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
