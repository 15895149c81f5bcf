"""What the whole suite shares: its seed, how much it samples, what each folder costs, and nothing left running.

OTTLA_SEED=7            the seed of every seeded test, and of Hypothesis; without it one is drawn and printed
OTTLA_SAMPLES=full      runs the tests marked `long` too, and gives the others more to do (`samples.py`)
OTTLA_BUDGET=strict     a folder that costs more than its budget fails the run; otherwise the run only says so
"""

import atexit
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests import loading
from tests.needs import summarise_skips
from tests.samples import FULL, choose_sample, sample_size

pytest_plugins = ("tests.distribution", "tests.kafka_peer", "tests.spark_session", "tests.zookeeper_server")

TESTS = Path(__file__).resolve().parent

# Seconds of processor time that the tests of a folder take with all the processes that they start, and a quarter more.
# Unlike the time on a clock, they are much the same on a busy machine.
BUDGETS = {
    ".": 20,
    "unit": 260,
    "scenarios": 75,
    "simulation": 40,
    "clients": 100,
    "cluster": 40,
    "spark": 95,
    "streams": 100,
    "connect": 80,
    "packages": 20,
}
FILES = {"clients": 15, "cluster": 7, "connect": 10, "scenarios": 36, "simulation": 11, "spark": 6, "streams": 6}
"""Of these folders the seed chooses as many files, in most a third: their tests start processes by the dozen."""
APACHE_KAFKA = "uses of Apache Kafka", 12
"""The sample of all tests that use its tools, clients or broker, name and size: a JVM takes seconds each time."""
STRICT = os.environ.get("OTTLA_BUDGET") == "strict"

SEED = int(os.environ.get("OTTLA_SEED") or random.SystemRandom().randrange(1 << 32))
os.environ["OTTLA_SEED"] = str(SEED)  # the processes of a parallel run inherit the seed of the one that started them

# Profiles of the user who runs the suite would decide which broker its commands ask.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="ottla-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)

# No example fails for being slow: what is limited is their number.
settings.register_profile(
    "suite",
    deadline=None,
    max_examples=sample_size(10, 200),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

_seconds: dict[str, float] = defaultdict(float)
"""Folder -> seconds of processor time."""
_spent_before = 0.0
"""What this process and its children had spent when the last file ended."""
_first_seen: dict[str, str] = {}
"""Thread or child process -> the test file after which it was first seen."""
_leaks: list[str] = []
_over_budget: list[str] = []


@pytest.fixture(scope="session")
def seed() -> int:
    """The run's seed: a test that wants randomness makes `random.Random(seed)`."""
    return SEED


@pytest.fixture(scope="module", autouse=True)
def shared_clients() -> Iterator[None]:
    """What one file has unpickled is closed before the next: its brokers are gone, the process is not."""
    yield
    client = sys.modules.get("ottla.client.client")
    if client is not None:
        client.close_shared_clients()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sample(name, size, together=False): so many of the tests with this name run, or of their files"
    )
    config.addinivalue_line("markers", "long: takes long, and runs with OTTLA_SAMPLES=full only (make test-all)")
    config.pluginmanager.register(loading, "tests.loading")
    # A shell starts its background jobs with interrupts ignored, and their children inherit it: tests send them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--hypothesis-seed", default=None) is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_report_header() -> str:
    return f"seed: OTTLA_SEED={SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if FULL:
        return
    kept = choose_tests([item for item in items if not item.get_closest_marker("long")])
    if others := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item in kept]


def choose_tests(items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests that run: those of the files that the seed chooses, and of those in a sample the few that it chooses
    among the tests with its name. A file whose tests are marked with `together` counts as one of them."""
    items = choose_files(items)
    samples: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[str, int] = {}
    for item in items:
        if marker := item.get_closest_marker("sample"):
            name, sizes[name] = marker.args
            samples[name][item.location[0] if marker.kwargs.get("together") else item.nodeid].append(item)
        elif uses_apache_kafka(item):
            name, sizes[name] = APACHE_KAFKA
            samples[name][item.nodeid].append(item)
    left_out: set[pytest.Item] = set()
    for name, found in samples.items():
        for each in set(found) - set(choose_sample([*found], sizes[name], name)):
            left_out.update(found[each])
    return set(items) - left_out


def choose_files(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of as many files of each folder as `FILES` says; of fewer files, all: nobody names a file in vain."""
    folders: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        file = item.nodeid.split("::")[0]
        folders[folder_of(file)][file].append(item)
    chosen: list[pytest.Item] = []
    for folder, files in folders.items():
        for file in choose_sample([*files], FILES.get(folder, len(files)), folder):
            chosen.extend(files[file])
    return chosen


def uses_apache_kafka(item: pytest.Item) -> bool:
    """Whether a test uses Apache Kafka's programs, or its broker for more than to compare answers, which is cheap."""
    fixtures = getattr(item, "fixturenames", ())
    return "kafka_tools" in fixtures and "both_brokers" not in fixtures


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the collector of garbage: next to everything that is imported and collected stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end: no later collection of garbage looks at it again."""
    global _spent_before
    gc.collect()
    gc.freeze()
    _spent_before = count_cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """After each file, count what it cost, and note what is running that was not there before: a leak has a name."""
    global _spent_before
    yield
    if nextitem is None or nextitem.path != item.path:
        spent = count_cpu_seconds()
        by_tests = spent - _spent_before - loading.take_loading_seconds()
        _seconds[folder_of(item.nodeid.split("::")[0])] += max(0.0, by_tests)
        _spent_before = spent
        for name in still_running():
            _first_seen.setdefault(name, item.location[0])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look for leaks in a process that has run tests; a worker hands them to the process that started it."""
    config = session.config
    if not loading.leads_workers(config):
        _leaks.extend(f"{name} was left running by {_first_seen.get(name, 'a test')}" for name in still_running())
    if is_worker(config):
        config.workeroutput["leaks"] = _leaks  # type: ignore[attr-defined]
        config.workeroutput["seconds"] = dict(_seconds)  # type: ignore[attr-defined]
        return
    _over_budget.extend(over_budget(_seconds, BUDGETS))
    if session.exitstatus == pytest.ExitCode.OK and (_leaks or (STRICT and _over_budget)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended. One that crashed has no output; its test is reported as failed."""
    output = getattr(node, "workeroutput", {})
    _leaks.extend(output.get("leaks", ()))
    for folder, seconds in output.get("seconds", {}).items():
        _seconds[folder] += seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"seed: OTTLA_SEED={SEED}")
    if _seconds:
        terminalreporter.write_line(describe_cost(_seconds, BUDGETS))
    if skips := [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]:
        terminalreporter.write_line(summarise_skips(skips))
    for line in _over_budget:
        terminalreporter.write_line(f"FAILED {line}" if STRICT else line, red=STRICT)
    for line in _leaks:
        terminalreporter.write_line(f"FAILED {line}", red=True)
    stats = terminalreporter.stats
    if stats.get("failed") or stats.get("error") or _leaks or (STRICT and _over_budget):
        terminalreporter.write_line(f"to run this again with the same seed: OTTLA_SEED={SEED}")


def is_worker(config: pytest.Config) -> bool:
    """Whether this is one of the processes of a parallel run that run tests."""
    return hasattr(config, "workerinput")


def folder_of(file: str) -> str:
    """The part of the suite a test file belongs to: the first folder below `tests`, or `.`."""
    path = Path(file)
    parts = path.relative_to(TESTS).parts if path.is_absolute() else path.parts[1:]
    return parts[0] if len(parts) > 1 else "."


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


def describe_cost(seconds: dict[str, float], budgets: dict[str, int]) -> str:
    """One line: processor time and budget of each folder, and the sum."""
    folders = ", ".join(f"{name} {spent:.0f} of {budgets.get(name, 0)}" for name, spent in sorted(seconds.items()))
    return f"CPU seconds by folder, of its budget: {folders}; together {sum(seconds.values()):.0f}"


def over_budget(seconds: dict[str, float], budgets: dict[str, int]) -> list[str]:
    """One line for each folder that took more than its budget, or that has none."""
    lines = []
    for folder, spent in sorted(seconds.items()):
        budget = budgets.get(folder)
        if budget is None:
            lines.append(f"tests/{folder} has no time budget: give it one in tests/conftest.py")
        elif spent > budget:
            lines.append(f"tests/{folder} took {spent:.0f} s of CPU, and its budget is {budget} s")
    return lines


def still_running() -> list[str]:
    """Child processes, and threads that would keep the interpreter from ending."""
    threads = [f"thread {thread.name}" for thread in threading.enumerate() if _holds_up_exit(thread)]
    children = [f"process {child.pid}" for child in psutil.Process().children() if _is_alive(child)]
    return threads + children


def _holds_up_exit(thread: threading.Thread) -> bool:
    return thread is not threading.main_thread() and not thread.daemon


def _is_alive(child: psutil.Process) -> bool:
    try:
        return bool(child.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
