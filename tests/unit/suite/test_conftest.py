"""The suite's own guards: what they must notice, they notice."""

import random
import subprocess
import sys
import threading
from pathlib import Path

from tests.conftest import BUDGETS, SEED, SUITE_SECONDS, TESTS, folder_of, over_budget, still_running
from tests.pace import INTERVAL_S, PIECE_S, Pace


def test_a_folder_over_its_budget_is_named() -> None:
    # Over the budget, or without one: a line each. Within it: silence. The factor stretches it.
    assert over_budget({"unit": 11.0}, {"unit": 10}, 1) == ["tests/unit took 11.0 s, and its budget is 10 s"]
    assert over_budget({"unit": 9.0}, {"unit": 10}, 1) == []
    assert over_budget({"unit": 11.0}, {"unit": 10}, 2) == []
    assert over_budget({"attic": 0.1}, {"unit": 10}, 1) == [
        "tests/attic has no time budget: give it one in tests/conftest.py"
    ]


def test_a_suite_over_its_limit_is_told() -> None:
    # Although no folder of it is over its budget.
    half = SUITE_SECONDS // 2 + 1
    budgets = {"unit": SUITE_SECONDS, "clients": SUITE_SECONDS}
    told = over_budget({"unit": half, "clients": half}, budgets, 1)
    assert told == [f"the suite took {2 * half} s, and may take {SUITE_SECONDS} s"]
    assert over_budget({"unit": half, "clients": half}, budgets, 1.1) == []


def test_every_folder_has_a_budget() -> None:
    folders = {folder_of(str(path)) for path in TESTS.rglob("test_*.py")}
    assert folders == BUDGETS.keys()
    assert max(BUDGETS.values()) < SUITE_SECONDS


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


def test_a_slow_machine_stretches_the_budgets() -> None:
    # By as much as the piece of work took longer on average; a fast one changes nothing; between two samples there is
    # a pause.
    now = [100.0]
    durations = iter([3 * PIECE_S, PIECE_S])

    def piece() -> None:
        now[0] += next(durations)

    pace = Pace(lambda: now[0], piece)
    assert pace.factor() == 1
    pace.sample()
    pace.sample()
    assert round(pace.factor(), 6) == 3
    now[0] += INTERVAL_S
    pace.sample()
    assert round(pace.factor(), 6) == 2
    assert Pace(lambda: 1.0, lambda: None).factor() == 1
