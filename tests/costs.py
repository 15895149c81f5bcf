"""What the tests cost, and which of the dear ones a run takes.

A run of the suite takes all the cheap tests, and of the dear ones in each folder a share of what they cost: the
seed chooses. So a run costs much the same whatever the seed is, and several runs cover everything. `costs.txt` lists
what is dear, in seconds of processor time with all the processes that a test starts. A line of it names

- a test that costs more than `DEAR_S`, with what it shares with others of its file, such as a broker in a fixture;
- a file whose tests share something that costs more than they do: they run together or not at all;
- a folder, with the sum of its cheap tests.

`make test-costs` runs everything but the tests marked `long` and writes the table anew. A test that it does not list is
cheap. Tests marked `always` run whatever they cost, and so do those of files and tests that were named one by one.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from random import Random

import psutil
import pytest

TESTS = Path(__file__).resolve().parent
TABLE = TESTS / "costs.txt"
DEAR_S = 0.3
SHARE = 0.15
"""What a run takes of the dear tests of each folder."""
TOLERANCE = 1.5
"""What a folder may take of what the table says: machines differ, and so do two runs."""
MEASURED = os.environ.get("OTTLA_COSTS") == "write"
"""Whether this run measures every test, to write the table."""


def folder_of(file: str) -> str:
    """The part of the suite a test file belongs to: the first folder below `tests`, or `.`."""
    path = Path(file)
    parts = path.relative_to(TESTS).parts if path.is_absolute() else path.parts[1:]
    return parts[0] if len(parts) > 1 else "."


def file_of(test: str) -> str:
    return test.split("::", 1)[0]


def count_cpu_seconds() -> float:
    """What this process and its children have spent, with those that have ended."""
    total = 0.0
    for process in (here := psutil.Process(), *here.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def read_table(path: Path = TABLE) -> dict[str, float]:
    """Test, file or folder -> seconds."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def choose_tests(items: Iterable[pytest.Item], seed: str, costs: Mapping[str, float]) -> set[pytest.Item]:
    """The tests that run: all that are cheap, and of each folder a share of the dear ones, at least one of them."""
    chosen: set[pytest.Item] = set()
    dear: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if name := find_row(item.nodeid, costs):
            dear[folder_of(name)][name].append(item)
        else:
            chosen.add(item)
    for folder, rows in dear.items():
        names = [*rows]
        Random(f"{seed} {folder}").shuffle(names)
        names.sort(key=lambda name: not rows[name][0].get_closest_marker("always"))
        left = SHARE * sum(costs[name] for name in names)
        for place, name in enumerate(names):
            if place == 0 or costs[name] <= left or rows[name][0].get_closest_marker("always"):
                left -= costs[name]
                chosen.update(rows[name])
    return chosen


def find_row(test: str, costs: Mapping[str, float]) -> str | None:
    """The row of a dear test: that of its file or its own."""
    return next((name for name in (file_of(test), test) if name in costs), None)


def sum_costs(tests: Iterable[str], costs: Mapping[str, float]) -> dict[str, float]:
    """Folder -> what the table says of these tests, and of all the cheap ones of the folder."""
    rows = {name for test in tests if (name := find_row(test, costs))}
    sums = {folder: costs.get(f"tests/{folder}", 0.0) for folder in {folder_of(file_of(test)) for test in tests}}
    for name in rows:
        sums[folder_of(file_of(name))] += costs[name]
    return sums


class Meter:
    """A plugin that measures every test of a run and everything that the tests of a file share."""

    def __init__(self) -> None:
        self.tests: dict[str, float] = {}
        self.files: dict[str, float] = defaultdict(float)
        self._own = 0.0
        """What measuring itself has cost so far."""
        self._shared = [0.0]
        """Of the test, and of each shared fixture that is being set up: what the shared fixtures inside it cost."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if not isinstance(item, pytest.Function):  # a placeholder, which is exchanged for the test inside this call
            return (yield)
        began, self._shared = self._count(), [0.0]
        try:
            return (yield)
        finally:
            self.tests[item.nodeid] = max(0.0, self._count() - began - self._shared[0])

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        began = self._count()
        self._shared.append(0.0)
        try:
            return (yield)
        finally:
            inner, spent = self._shared.pop(), self._count() - began
            self._shared[-1] += spent
            if fixturedef.scope != "session":  # what the whole run shares is nobody's
                self.files[file_of(request.node.nodeid)] += max(0.0, spent - inner)

    def _count(self) -> float:
        began = time.process_time()
        counted = count_cpu_seconds()
        self._own += time.process_time() - began
        return counted - self._own


def tabulate(tests: Mapping[str, float], files: Mapping[str, float]) -> str:
    """The text of the table."""
    rows: dict[str, float] = defaultdict(float)
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        by_file[file_of(test)].append(test)
    for file, names in by_file.items():
        rest, shared, own = f"tests/{folder_of(file)}", files.get(file, 0.0), sum(tests[name] for name in names)
        if shared + own >= DEAR_S and (len(names) == 1 or shared > own):
            rows[file] = shared + own
            continue
        if shared < DEAR_S:
            rows[rest] += shared
            shared = 0.0
        for name in names:
            rows[name if shared + tests[name] >= DEAR_S else rest] += shared + tests[name]
    return "".join(f"{seconds:.1f} {name}\n" for name, seconds in sorted(rows.items()))


def describe_cost(seconds: Mapping[str, float], expected: Mapping[str, float]) -> str:
    """One line: processor time of each folder, what the table says of it, and the sum of both."""
    folders = (f"{name} {spent:.0f} of {expected.get(name, 0):.0f}" for name, spent in sorted(seconds.items()))
    total = f"{sum(seconds.values()):.0f} of {sum(expected.values()):.0f}"
    return f"CPU seconds by folder, of what costs.txt says: {', '.join(folders)}; together {total}"


def name_overruns(seconds: Mapping[str, float], expected: Mapping[str, float]) -> list[str]:
    """One line for each folder that took much more than the table says."""
    return [
        f"tests/{folder} took {spent:.0f} s of CPU instead of {expected.get(folder, 0):.0f}: make test-costs tells why"
        for folder, spent in sorted(seconds.items())
        if spent > TOLERANCE * expected.get(folder, 0)
    ]
