"""What the whole suite shares: its seed, the time each folder may take, and nothing left running at the end.

OTTLA_SEED=7            the seed of every seeded test, and of Hypothesis; without it one is drawn and printed
OTTLA_BUDGET_FACTOR=3   stretches the budgets; without it by as much as this machine is slow or busy
"""

import os
import random
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from tests.pace import Pace

pytest_plugins = ("tests.kafka_peer",)

TESTS = Path(__file__).resolve().parent

# Seconds that all tests of a folder may take together, on two quiet cores: what was measured, and a quarter more.
BUDGETS = {
    ".": 20,
    "unit": 155,
    "scenarios": 115,
    "simulation": 90,
    "clients": 320,
    "spark": 310,
}
SUITE_SECONDS = 900
"""What all of them may take, with Apache Kafka and Spark: they cannot all use up what they have."""

SEED = int(os.environ.get("OTTLA_SEED") or random.SystemRandom().randrange(1 << 32))
BUDGET_FACTOR = float(os.environ.get("OTTLA_BUDGET_FACTOR", "0"))

settings.register_profile("suite", deadline=None, print_blob=True)
settings.load_profile("suite")

_seconds: dict[str, float] = defaultdict(float)
_first_seen: dict[str, str] = {}
"""Thread or child process -> the test file after which it was first seen."""
_complaints: list[str] = []
_pace = Pace()


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
    # A shell starts its background jobs with interrupts ignored, and their children inherit it: tests send them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--hypothesis-seed", default=None) is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_report_header() -> str:
    return f"seed: OTTLA_SEED={SEED}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[folder_of(report.fspath)] += report.duration


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """After each file, note what is running that was not there before, so that a leak can be told by name."""
    yield
    _pace.sample()
    if nextitem is None or nextitem.path != item.path:
        for name in still_running():
            _first_seen.setdefault(name, item.location[0])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    _complaints.extend(over_budget(_seconds, BUDGETS, budget_factor()))
    _complaints.extend(f"{name} was left running by {_first_seen.get(name, 'a test')}" for name in still_running())
    if _complaints and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _seconds and len(_seconds) > 1:
        spent = ", ".join(f"{folder} {seconds:.0f} s" for folder, seconds in sorted(_seconds.items()))
        terminalreporter.write_line(f"time by folder: {spent}; {_pace.factor():.1f} times that of a quiet machine")
    for complaint in _complaints:
        terminalreporter.write_line(f"FAILED {complaint}", red=True)
    if terminalreporter.stats.get("failed") or _complaints:
        terminalreporter.write_line(f"to run this again with the same seed: OTTLA_SEED={SEED}")


def folder_of(file: str) -> str:
    """The part of the suite a test file belongs to: the first folder below `tests`, or `.`."""
    path = Path(file)
    parts = path.relative_to(TESTS).parts if path.is_absolute() else path.parts[1:]
    return parts[0] if len(parts) > 1 else "."


def budget_factor() -> float:
    return BUDGET_FACTOR or _pace.factor()


def over_budget(seconds: dict[str, float], budgets: dict[str, int], factor: float) -> list[str]:
    """One line for each folder that took longer than it may, or that nobody gave a budget, and one for the suite."""
    lines = []
    for folder, spent in sorted(seconds.items()):
        budget = budgets.get(folder)
        if budget is None:
            lines.append(f"tests/{folder} has no time budget: give it one in tests/conftest.py")
        elif spent > budget * factor:
            lines.append(f"tests/{folder} took {spent:.1f} s, and its budget is {budget * factor:.0f} s")
    total = sum(seconds.values())
    if total > SUITE_SECONDS * factor:
        lines.append(f"the suite took {total:.0f} s, and may take {SUITE_SECONDS * factor:.0f} s")
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
