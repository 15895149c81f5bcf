"""What the whole suite shares: its seed, how much it samples, what each folder costs, and nothing left running.

OTTLA_SEED=7            the seed of every seeded test, and of Hypothesis; without it one is drawn and printed
OTTLA_SAMPLES=full      runs the tests marked `long` too, and gives the others more to do (`samples.py`)
OTTLA_BUDGET=strict     a folder that costs much more than `costs.txt` says fails the run, which otherwise only says so
OTTLA_COSTS=write       measures every test and writes `costs.txt`, which says what is dear (make test-costs)
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
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests import loading
from tests.costs import (
    MEASURED,
    TABLE,
    Meter,
    choose_tests,
    count_cpu_seconds,
    describe_cost,
    folder_of,
    name_overruns,
    read_table,
    sum_costs,
    tabulate,
)
from tests.needs import summarise_skips
from tests.samples import FULL, sample_size

pytest_plugins = ("tests.distribution", "tests.kafka_peer", "tests.spark_session", "tests.zookeeper_server")

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
_overruns: list[str] = []
_expected: dict[str, float] = {}
"""Folder -> seconds that its tests of this run should take."""
_meter = Meter()


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
    config.addinivalue_line("markers", "always: runs whatever it costs (tests/costs.py)")
    config.addinivalue_line("markers", "long: takes long, and runs with OTTLA_SAMPLES=full only (make test-all)")
    config.pluginmanager.register(loading, "tests.loading")
    if MEASURED:
        config.pluginmanager.register(_meter, "tests.meter")
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
    costs = read_table()
    usual = [item for item in items if not item.get_closest_marker("long")]
    kept = {*usual} if MEASURED or names_tests(config) else choose_tests(usual, str(SEED), costs)
    if others := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item in kept]
    _expected.update(sum_costs([item.nodeid for item in items], costs))


def names_tests(config: pytest.Config) -> bool:
    """Whether whoever started the run named files or tests, and not only folders."""
    return bool(config.option.keyword) or any(".py" in argument for argument in config.args)


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
        config.workeroutput["costs"] = [_meter.tests, dict(_meter.files)]  # type: ignore[attr-defined]
        return
    if MEASURED:
        TABLE.write_text(tabulate(_meter.tests, _meter.files))
    if not FULL and not MEASURED and not names_tests(config):
        _overruns.extend(name_overruns(_seconds, _expected))
    if session.exitstatus == pytest.ExitCode.OK and (_leaks or (STRICT and _overruns)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended. One that crashed has no output; its test is reported as failed."""
    output = getattr(node, "workeroutput", {})
    _leaks.extend(output.get("leaks", ()))
    for folder, seconds in output.get("seconds", {}).items():
        _seconds[folder] += seconds
    tests, files = output.get("costs", ({}, {}))
    _meter.tests.update(tests)
    _meter.files.update(files)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"seed: OTTLA_SEED={SEED}")
    if _seconds:
        terminalreporter.write_line(describe_cost(_seconds, _expected))
    if skips := [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())]:
        terminalreporter.write_line(summarise_skips(skips))
    for line in _overruns:
        terminalreporter.write_line(f"FAILED {line}" if STRICT else line, red=STRICT)
    for line in _leaks:
        terminalreporter.write_line(f"FAILED {line}", red=True)
    stats = terminalreporter.stats
    if stats.get("failed") or stats.get("error") or _leaks or (STRICT and _overruns):
        terminalreporter.write_line(f"to run this again with the same seed: OTTLA_SEED={SEED}")


def is_worker(config: pytest.Config) -> bool:
    """Whether this is one of the processes of a parallel run that run tests."""
    return hasattr(config, "workerinput")


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
