"""Which tests a run takes follows from what they cost and from the seed; the seconds of each folder are counted."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.costs import (
    SHARE,
    TABLE,
    TESTS,
    choose_tests,
    count_cpu_seconds,
    describe_cost,
    file_of,
    folder_of,
    name_overruns,
    read_table,
    sum_costs,
    tabulate,
)


class Item:
    def __init__(self, name: str, marks: tuple[str, ...]) -> None:
        self.nodeid, self.marks = name, marks

    def get_closest_marker(self, mark: str) -> bool:
        return mark in self.marks


def item(name: str, *marks: str) -> Any:
    """What the choice needs to know of a test."""
    return Item(name, marks)


def test_cheap_tests_and_a_share_of_the_dear_ones_are_chosen() -> None:
    # The same seed chooses the same tests.
    dear = [item(f"tests/spark/test_x.py::test_{number}") for number in range(20)]
    cheap = item("tests/spark/test_x.py::test_cheap")
    costs = {each.nodeid: 3.0 for each in dear} | {"tests/spark": 9.0}
    chosen = choose_tests([*dear, cheap], "7", costs)
    assert cheap in chosen
    assert len(chosen) == SHARE * len(dear) + 1
    assert choose_tests([*dear, cheap], "7", costs) == chosen
    assert choose_tests([*dear, cheap], "8", costs) != chosen
    assert sum_costs([each.nodeid for each in chosen], costs) == {"spark": 9.0 + SHARE * 60}


def test_every_dear_test_is_chosen_by_some_seed() -> None:
    # Also one that costs more than the share of its folder.
    dear = [item(f"tests/spark/test_x.py::test_{number}") for number in range(20)]
    costs = {each.nodeid: 1.0 for each in dear} | {dear[7].nodeid: 60.0}
    chosen = {each.nodeid for seed in range(200) for each in choose_tests(dear, str(seed), costs)}
    assert len(chosen) == len(dear)


def test_the_tests_of_a_dear_file_run_together_or_not_at_all() -> None:
    files = [[item(f"tests/spark/test_{file}.py::test_{number}") for number in range(3)] for file in range(20)]
    costs = {f"tests/spark/test_{file}.py": 5.0 for file in range(20)}
    chosen = choose_tests([each for file in files for each in file], "7", costs)
    taken = round(SHARE * len(files))
    assert sorted(len(chosen & {*file}) for file in files) == [0] * (len(files) - taken) + [3] * taken


def test_a_test_marked_always_runs_whatever_it_costs() -> None:
    dear = [item(f"tests/spark/test_x.py::test_{number}", "always") for number in range(3)]
    other = item("tests/spark/test_x.py::test_other")
    costs = {each.nodeid: 5.0 for each in dear} | {other.nodeid: 1.0}
    assert choose_tests([other, *dear], "7", costs) == {*dear}


def test_the_table_lists_tests_files_and_the_rest_of_a_folder() -> None:
    tests = {
        "tests/unit/test_a.py::test_dear": 2.0,
        "tests/unit/test_a.py::test_cheap": 0.1,
        "tests/unit/test_b.py::test_one": 0.1,
        "tests/unit/test_b.py::test_two[x y]": 0.1,
        "tests/unit/test_c.py::test_alone[7]": 0.5,
        "tests/unit/test_d.py::test_one": 1.0,
        "tests/unit/test_d.py::test_two": 0.1,
    }
    text = tabulate(tests, {"tests/unit/test_a.py": 0.2, "tests/unit/test_b.py": 1.0, "tests/unit/test_d.py": 0.7})
    assert text.splitlines() == [
        "0.3 tests/unit",
        "2.0 tests/unit/test_a.py::test_dear",
        "1.2 tests/unit/test_b.py",
        "0.5 tests/unit/test_c.py",
        "1.7 tests/unit/test_d.py::test_one",
        "0.8 tests/unit/test_d.py::test_two",
    ]


def test_the_table_of_the_suite_names_what_is_there() -> None:
    for name in read_table():
        assert (TESTS.parent / file_of(name)).exists(), f"{TABLE.name}: {name} is not there: make test-costs"


def test_a_folder_that_costs_much_more_than_the_table_says_is_named() -> None:
    (line,) = name_overruns({"unit": 16.0, "spark": 14.0}, {"unit": 10.0, "spark": 10.0})
    assert line == "tests/unit took 16 s of CPU instead of 10: make test-costs tells why"


def test_the_cost_of_each_folder_is_one_line() -> None:
    assert describe_cost({"unit": 11.4, "spark": 2.0}, {"unit": 10.0, "spark": 3.0}) == (
        "CPU seconds by folder, of what costs.txt says: spark 2 of 3, unit 11 of 10; together 13 of 13"
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


def test_a_file_is_counted_for_its_folder() -> None:
    assert folder_of("tests/unit/storage/test_log.py") == "unit"
    assert folder_of("tests/test_tidy.py") == "."
    assert folder_of(str(Path(TESTS, "clients", "test_x.py"))) == "clients"
