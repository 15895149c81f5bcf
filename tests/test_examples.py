"""Every example of examples/ that needs no Spark is run as its first lines say; tests/spark runs the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if "spark" not in path.read_text())
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PYTEST = ["-m", "pytest", "-q", "-c", os.devnull, "-p", "ottla.testing.plugin", "-p", "no:cacheprovider"]


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_works(example: Path, tmp_path: Path) -> None:
    # As a user runs it, from a directory of their own; not even a warning may come.
    runner = PYTEST if example.name.startswith("test_") else []
    command = [sys.executable, "-W", "error", *runner, str(example)]
    finished = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
