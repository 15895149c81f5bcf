"""The suite's own guards notice what they must notice."""

import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import SEED, still_running
from tests.costs import TESTS
from tests.patience import PATIENCE_S
from tests.samples import FULL, choose_sample


def test_a_thread_left_behind_is_noticed() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten")
    thread.start()
    assert "thread forgotten" in still_running()
    release.set()
    thread.join()
    assert "thread forgotten" not in still_running()


def test_a_child_left_behind_is_noticed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert f"process {child.pid}" in still_running()
    child.communicate(b"\n")
    assert f"process {child.pid}" not in still_running()


def test_the_seed_is_the_one_that_is_printed(seed: int) -> None:
    assert seed == SEED
    assert random.Random(seed).random() == random.Random(SEED).random()


def run_suite_in(directory: Path, tests: str, *options: str, **environment: str) -> tuple[int, str]:
    """Run tests that are not ours with this suite's conftest and configuration. Returns status and output."""
    (directory / "test_nested.py").write_text(tests)
    plugins = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-c", str(TESTS.parent / "pyproject.toml"))
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(directory), *options, str(directory)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OTTLA_", "PYTEST_"))}
    paths = os.pathsep.join((str(TESTS.parent / "src"), str(TESTS.parent)))
    ended = subprocess.run(
        command,
        cwd=directory,
        env={**inherited, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return ended.returncode, ended.stdout + ended.stderr


PARALLEL = """
import os, pathlib, subprocess, sys
import pytest
from tests.conftest import SEED
from tests.needs import skip_without

with pathlib.Path("imported").open("a") as file:
    file.write(f"{os.getpid()}\\n")

def test_seed():
    assert SEED == 77

@pytest.mark.parametrize("number", range(3))
def test_skipped(number):
    skip_without("kcat", "kcat is not installed")

@pytest.mark.long
def test_long():
    raise AssertionError("not in the usual run")

def test_leak():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    globals()["leaked"] = child
"""

GROUPED = """
import os, pathlib
import pytest

@pytest.fixture
def kafka_tools(): pass

def test_in_a_group(kafka_tools):
    with pathlib.Path("processes").open("a") as file:
        file.write(f"{os.getpid()}\\n")

def test_by_itself(): pass
"""


def test_a_parallel_run(tmp_path: Path) -> None:
    # Three workers have the seed of the run. Files with tests of a group run in one of them, and a file is imported by
    # the process that leads the run and by the worker that runs it. All tests pass, and the run fails because a worker
    # has left a process behind. The skips are one line.
    for number in range(3):
        (tmp_path / f"test_grouped_{number}.py").write_text(GROUPED)
    status, output = run_suite_in(tmp_path, PARALLEL, "-n", "3", OTTLA_SEED="77")
    assert status == 1, output
    assert "8 passed, 3 skipped" in output
    assert "seed: OTTLA_SEED=77" in output
    assert re.search(r"^FAILED process \d+ was left running by test_nested.py$", output, re.MULTILINE), output
    assert re.search(r"^CPU seconds by folder, of what costs.txt says: \S+ \d+ of", output, re.MULTILINE), output
    assert re.search(r"^skipped: 3 tests need kcat \(kcat is not installed\)$", output, re.MULTILINE), output
    processes = (tmp_path / "processes").read_text().split()
    assert len(processes) == 3
    assert len({*processes}) == 1
    assert len((tmp_path / "imported").read_text().split()) == 2


def test_a_file_that_cannot_be_imported_ends_a_parallel_run(tmp_path: Path) -> None:
    status, output = run_suite_in(tmp_path, "import nothing_of_this_name", "-n", "1")
    assert status == pytest.ExitCode.INTERRUPTED, output
    assert "No module named 'nothing_of_this_name'" in output
    assert "1 error in " in output


HANGING = """
import time

def test_forever():
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass
"""


def test_a_test_that_hangs_is_named_and_ends_its_process(tmp_path: Path) -> None:
    # Although the test catches every exception.
    limit = ("-o", "faulthandler_timeout=0.5", "-n", "1", "--max-worker-restart", "0")
    status, output = run_suite_in(tmp_path, HANGING, *limit)
    assert status == 1, output
    assert re.search(r"FAILED .*test_nested\.py::test_forever", output), output
    assert "in test_forever" in output, "the stacks are printed"


def test_a_sample_of_cases_is_chosen_by_the_seed_and_all_in_a_full_run() -> None:
    names = [*"abcdef"]
    assert choose_sample(names, 2, "numbers") == choose_sample(names, 2, "numbers")
    assert len(choose_sample(names, 2, "numbers")) == (len(names) if FULL else 2)


def test_long_tests_are_for_a_full_run(tmp_path: Path) -> None:
    status, output = run_suite_in(tmp_path, PARALLEL, "-k", "long", OTTLA_SAMPLES="full")
    assert (status, "not in the usual run" in output) == (1, True), output


MEASURED = """
import time
import pytest

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass

@pytest.fixture(scope="session")
def of_all(): work(0.7)

@pytest.fixture(scope="module")
def of_file(of_all): work(0.5)

@pytest.mark.parametrize("number", range(2))
def test_shares(of_file, number): work(0.2)
"""

SEPARATE = """
from test_nested import of_all, work

def test_dear(of_all): work(0.4)

def test_cheap(): pass
"""


def test_a_run_that_measures_lists_what_is_dear(tmp_path: Path) -> None:
    # A test by itself, a file whose tests share more than they cost, and nothing for what the whole run shares.
    (tmp_path / "test_separate.py").write_text(SEPARATE)
    table = tmp_path / "costs.txt"
    keep = f"import pathlib, tests.conftest\ntests.conftest.TABLE = pathlib.Path({str(table)!r})\n"
    (tmp_path / "conftest.py").write_text(keep)
    status, output = run_suite_in(tmp_path, MEASURED, "-n", "2", OTTLA_COSTS="write", PYTHONDONTWRITEBYTECODE="1")
    assert status == 0, output
    rows = {name: float(seconds) for seconds, name in (line.split() for line in table.read_text().splitlines())}
    assert rows.keys() == {"tests/.", "test_nested.py", "test_separate.py::test_dear"}
    assert 0.8 < rows["test_nested.py"] < 1.4
    assert 0.3 < rows["test_separate.py::test_dear"] < 0.8
