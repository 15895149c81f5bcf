"""The suite's own guards notice what they must notice."""

import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import (
    APACHE_KAFKA,
    BUDGETS,
    FILES,
    SEED,
    TESTS,
    choose_files,
    count_cpu_seconds,
    describe_cost,
    folder_of,
    over_budget,
    still_running,
)
from tests.patience import PATIENCE_S
from tests.samples import FULL, choose_sample


def test_a_folder_over_its_budget_is_named() -> None:
    # A folder over its budget, or without one, gives a line. A folder within its budget gives none.
    assert over_budget({"unit": 11.0}, {"unit": 10}) == ["tests/unit took 11 s of CPU, and its budget is 10 s"]
    assert over_budget({"unit": 9.0}, {"unit": 10}) == []
    assert over_budget({"attic": 0.1}, {"unit": 10}) == [
        "tests/attic has no time budget: give it one in tests/conftest.py"
    ]


def test_the_cost_of_each_folder_is_one_line() -> None:
    assert describe_cost({"unit": 11.4, "spark": 2.0}, {"unit": 10, "spark": 3}) == (
        "CPU seconds by folder, of its budget: spark 2 of 3, unit 11 of 10; together 13"
    )


def test_processor_time_of_children_counts_while_they_run_and_afterwards() -> None:
    # The child works until it has spent as much as it must.
    work = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    before = count_cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert count_cpu_seconds() >= before + 0.45
        child.communicate(b"\n")
    assert count_cpu_seconds() >= before + 0.45


def test_every_folder_has_a_budget() -> None:
    assert {folder_of(str(path)) for path in TESTS.rglob("test_*.py")} == BUDGETS.keys()


def test_a_file_is_counted_for_its_folder() -> None:
    assert folder_of("tests/unit/storage/test_log.py") == "unit"
    assert folder_of("tests/test_tidy.py") == "."
    assert folder_of(str(Path(TESTS, "clients", "test_x.py"))) == "clients"


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

@pytest.mark.parametrize("number", range(5))
@pytest.mark.sample("numbers", 2)
def test_number(number): pass

@pytest.mark.sample("numbers", 2)
def test_another(): pass

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


@pytest.mark.sample("runs of a suite", 3)
def test_a_parallel_run(tmp_path: Path) -> None:
    # Three workers have the seed of the run, and run as many tests of a sample as it says. Files with tests of a group
    # run in one of them, and a file is imported by the process that leads the run and by the worker that runs it. All
    # tests pass, and the run fails because a worker has left a process behind. The skips are one line.
    for number in range(3):
        (tmp_path / f"test_grouped_{number}.py").write_text(GROUPED)
    status, output = run_suite_in(tmp_path, PARALLEL, "-n", "3", OTTLA_SEED="77")
    assert status == 1, output
    assert "10 passed, 3 skipped" in output
    assert "seed: OTTLA_SEED=77" in output
    assert re.search(r"^FAILED process \d+ was left running by test_nested.py$", output, re.MULTILINE), output
    assert re.search(r"^CPU seconds by folder, of its budget: \S+ \d+ of", output, re.MULTILINE), output
    assert re.search(r"^skipped: 3 tests need kcat \(kcat is not installed\)$", output, re.MULTILINE), output
    processes = (tmp_path / "processes").read_text().split()
    assert len(processes) == 3
    assert len({*processes}) == 1
    assert len((tmp_path / "imported").read_text().split()) == 2


@pytest.mark.sample("runs of a suite", 3)
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


@pytest.mark.sample("runs of a suite", 3)
def test_a_test_that_hangs_is_named_and_ends_its_process(tmp_path: Path) -> None:
    # Although the test catches every exception.
    limit = ("-o", "faulthandler_timeout=0.5", "-n", "1", "--max-worker-restart", "0")
    status, output = run_suite_in(tmp_path, HANGING, *limit)
    assert status == 1, output
    assert re.search(r"FAILED .*test_nested\.py::test_forever", output), output
    assert "in test_forever" in output, "the stacks are printed"


@pytest.mark.sample("runs of a suite", 3)
def test_a_few_tests_of_a_sample_run_and_all_in_a_full_run(tmp_path: Path) -> None:
    # The same seed chooses the same tests.
    names = [*"abcdef"]
    assert choose_sample(names, 2, "numbers") == choose_sample(names, 2, "numbers")
    assert len(choose_sample(names, 2, "numbers")) == (len(names) if FULL else 2)
    status, output = run_suite_in(tmp_path, PARALLEL, "-k", "number or another", OTTLA_SAMPLES="full")
    assert (status, "6 passed" in output) == (0, True), output


def test_the_seed_chooses_files_of_dear_folders() -> None:
    # As many as the table says, whole, the same for the same seed, and all files of the other folders.
    tests: list[Any] = [
        SimpleNamespace(nodeid=f"tests/{folder}/test_{number}.py::test_{name}")
        for folder in ("spark", "unit")
        for number in range(FILES["spark"] + 1)
        for name in ("one", "two")
    ]
    chosen = choose_files(tests)
    of_spark = {test.nodeid.split("::")[0] for test in chosen if "/spark/" in test.nodeid}
    assert len(of_spark) == FILES["spark"] + FULL
    assert len(chosen) == 2 * (len(of_spark) + FILES["spark"] + 1)
    assert choose_files(tests) == chosen
    assert choose_files(tests[:2]) == tests[:2]


TOGETHER = """
import pytest

pytestmark = pytest.mark.sample("files", 1, together=True)

def test_one(): pass

def test_two(): pass
"""


@pytest.mark.sample("runs of a suite", 3)
def test_the_tests_of_a_file_are_chosen_together(tmp_path: Path) -> None:
    for name in ("test_first.py", "test_second.py"):
        (tmp_path / name).write_text(TOGETHER)
    _, output = run_suite_in(tmp_path, TOGETHER, "-v")
    ran = re.findall(r"(test_\w+\.py)::(test_\w+) PASSED", output)
    assert [test for _, test in ran] == ["test_one", "test_two"], output
    assert len({file for file, _ in ran}) == 1


KAFKA = """
import pytest

@pytest.fixture
def kafka_tools(): pass

@pytest.fixture
def both_brokers(kafka_tools): pass

@pytest.mark.parametrize("number", range(20))
def test_tool(number, kafka_tools): pass

@pytest.mark.parametrize("number", range(20))
def test_both(number, both_brokers): pass
"""


@pytest.mark.sample("runs of a suite", 3)
def test_uses_of_apache_kafka_are_a_sample_without_a_mark(tmp_path: Path) -> None:
    # Tests that only compare the answers of two brokers are not among them.
    status, output = run_suite_in(tmp_path, KAFKA, OTTLA_SAMPLES="")
    assert (status, f"{20 + APACHE_KAFKA[1]} passed" in output) == (0, True), output
