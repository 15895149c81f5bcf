"""The process that compacts: the same work over a pipe, errors unchanged, and an end with its broker."""

import io
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ottla.storage.cleaner import child
from ottla.storage.cleaner.child import ChildCompactor
from ottla.storage.cleaner.inline import InlineCompactor
from ottla.storage.cleaner.order import CompactionOrder, Compactor, Report, Source, Summary, Uncleanable
from ottla.storage.files import RealDisk
from ottla.storage.opening import create_log
from tests.patience import PATIENCE_S
from tests.unit.storage.cleaner.compactions import SETTINGS, order_for, put
from tests.unit.storage.logs import NOW, TOPIC_ID


def dirty(directory: Path) -> CompactionOrder:
    log = create_log(RealDisk(), str(directory), TOPIC_ID, SETTINGS, NOW)
    for number in range(30):
        put(log, (f"k{number % 3}", str(number)))
    log.roll(NOW)
    log.flush()
    order = order_for(log)
    log.close()
    return order


def reports(compactor: Compactor, order: CompactionOrder) -> list[Report]:
    compactor.begin(order)
    found = [compactor.step()]
    while not isinstance(found[-1], Summary):
        found.append(compactor.step())
    return found


def test_the_child_does_the_same_as_the_test_process(tmp_path: Path) -> None:
    orders = [dirty(tmp_path / name) for name in ("here", "there", "there again")]
    inline = reports(InlineCompactor(RealDisk()), orders[0])
    compactor = ChildCompactor()
    try:
        assert reports(compactor, orders[1]) == inline
        assert reports(compactor, orders[2]) == inline, "a child takes more than one order"
    finally:
        compactor.end()
    cleaned = [
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.cleaned")} for name in ("here", "there")
    ]
    assert cleaned[0] == cleaned[1] and len(cleaned[0]) >= 6


def test_errors_are_passed_on_and_the_child_continues(tmp_path: Path) -> None:
    order = dirty(tmp_path / "sound")
    missing = CompactionOrder(
        str(tmp_path / "missing"), [Source(0, 10, 100)], 0, NOW, 0, 1000, 1000, 100, compiled=False
    )
    broken = dirty(tmp_path / "broken")
    with (tmp_path / "broken" / f"{0:020d}.log").open("r+b") as file:
        file.write(bytes(50))
    compactor = ChildCompactor()
    try:
        with pytest.raises(FileNotFoundError):
            reports(compactor, missing)
        with pytest.raises(Uncleanable, match="damaged at byte 0"):
            reports(compactor, broken)
        assert isinstance(reports(compactor, order)[-1], Summary)
    finally:
        compactor.end()


def find_child() -> psutil.Process:
    """The child process. A moment after its start it still has the command line of this process."""
    while True:
        for process in psutil.Process().children():
            if child.__name__ in process.cmdline():
                return process


def test_a_child_that_is_killed_is_noticed_and_replaced(tmp_path: Path) -> None:
    order = dirty(tmp_path / "log")
    compactor = ChildCompactor()
    try:
        compactor.begin(order)
        find_child().send_signal(signal.SIGKILL)
        with pytest.raises(Uncleanable, match="ended with status -9"):
            while True:
                compactor.step()
        assert isinstance(reports(compactor, order)[-1], Summary)
    finally:
        compactor.end()
        compactor.end()


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    # The child ends between two orders, or at its next report in the middle of one.
    order = dirty(tmp_path / "log")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for orders in (b"", pickle.dumps(order)):
        done = subprocess.run(
            [sys.executable, "-P", "-m", child.__name__],
            input=orders,
            env=environment,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_stopped_compactor_reports_nothing() -> None:
    for compactor in (InlineCompactor(RealDisk()), ChildCompactor()):
        with pytest.raises(Uncleanable, match="given up"):
            compactor.step()


def test_serving_ends_with_the_orders() -> None:
    output = io.BytesIO()
    child.serve(io.BytesIO(b""), output)
    assert output.getvalue() == b""
