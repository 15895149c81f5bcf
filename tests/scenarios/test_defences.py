"""Each defence is taken out of the code, and its test must fail: a test that passes without it shows nothing.

So is each check of rights in the handlers. The code is copied, one line of the copy is changed, and the test runs with
it in a process of its own. That takes minutes, so it is a long test. That the table fits the code is checked always.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ottla
from tests.scenarios.checks_of_rights import Check, find_checks
from tests.scenarios.defences import DEFENCES, Defence

ROOT = Path(__file__).parents[2]
SOURCE = Path(ottla.__file__).parents[1]
ALL_PASSED, SOME_FAILED = 0, 1
CHECKS = find_checks(SOURCE / "ottla" / "handlers")
WAITS_IN_VAIN_S = 15
"""A test whose defence is taken out may wait for something that does not happen."""


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: defence.against)
def test_the_table_fits_the_code(defence: Defence) -> None:
    text = (SOURCE / "ottla" / defence.file).read_text()
    assert text.count(defence.line) == 1, defence.line
    file, _, test = defence.test.partition("::")
    assert f"def {test.partition('[')[0]}(" in (ROOT / file).read_text() or not test


def test_every_defence_is_named_once() -> None:
    assert len({defence.against for defence in DEFENCES}) == len(DEFENCES)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source, with what was compiled of it."""
    place = tmp_path_factory.mktemp("copy") / "src"
    shutil.copytree(SOURCE, place)
    return place


@contextmanager
def changed(path: Path, change: Callable[[str], str]) -> Iterator[None]:
    """A file of the copy with a change in it."""
    original = path.read_text()
    write(path, change(original))
    try:
        yield
    finally:
        write(path, original)


def write(path: Path, text: str) -> None:
    path.write_text(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def run_test(copy: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", f"pythonpath={copy} {ROOT}"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OTTLA_PATIENCE_S": str(WAITS_IN_VAIN_S),
    }
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    ended = subprocess.run([*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode in (ALL_PASSED, SOME_FAILED), ended.stdout[-3000:] + ended.stderr[-1000:]
    return ended.returncode


@pytest.mark.long
@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: defence.against)
def test_without_its_defence_a_test_fails(defence: Defence, copy: Path) -> None:
    with changed(copy / "ottla" / defence.file, lambda text: text.replace(defence.line, defence.without)):
        assert run_test(copy, defence.test) == SOME_FAILED


def test_the_checks_of_rights_are_found() -> None:
    # Of every handler that checks the parts of a request.
    checked = {check.file for check in CHECKS}
    assert {"produce.py", "fetch.py", "config_rights.py", "offset_fetch.py", "sync_group.py"} <= checked
    assert len(CHECKS) > 50


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=repr)
def test_without_a_check_of_rights_a_test_fails(check: Check, copy: Path) -> None:
    with changed(copy / "ottla" / "handlers" / check.file, check.remove):
        assert any(run_test(copy, *arguments) == SOME_FAILED for arguments in check.tests)
