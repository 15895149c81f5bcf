"""In a parallel run one process collects the tests, and a worker imports a file of tests when it is about to run it.

Otherwise every worker would import and collect everything. The process that leads the run collects while its workers
start, and lists the tests in a file, in the order in which they are handed out. A worker has a placeholder for each,
and exchanges it for the real test when it runs.

A run of tests that are named or selected one by one does without: every worker collects what it was told.
"""

import gc
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

LISTING = "tests.json"
MUCH_S = 0.3
"""Processor time after which so much was imported that no later collection of garbage should look at it again."""

Listing = Mapping[str, Sequence[str]]
"""File -> the names of its tests. Both together are a test's id."""

_places = pytest.StashKey[dict[str, int]]()
"""Of a worker: test -> its place in the order in which tests are handed out."""
_listing = pytest.StashKey[Listing]()
_loading_s = 0.0


def leads_workers(config: pytest.Config) -> bool:
    """Whether this process hands tests to workers."""
    option = config.option
    return getattr(option, "dist", "no") != "no" and not option.collectonly and not hasattr(config, "workerinput")


def may_list(config: pytest.Config) -> bool:
    """Whether a placeholder is enough to tell if a test is one of this run."""
    options = ("keyword", "markexpr", "deselect", "lf", "failedfirst", "newfirst", "stepwise")
    return not any(config.getoption(name, default=None) for name in options) and not any(
        "::" in argument for argument in config.args
    )


def list_tests(session: pytest.Session, directory: Path) -> None:
    """Collect, in the process that leads the run, and write the list for the workers."""
    ids: list[str] | None = None
    try:
        if may_list(session.config):
            ids = [item.nodeid for item in session.perform_collect()]
            if session.testsfailed:
                raise session.Interrupted(f"{session.testsfailed} errors during collection")
    finally:
        session.items = []
        partial = directory / f"{LISTING}.partial"
        partial.write_text(json.dumps(ids))
        partial.replace(directory / LISTING)


def await_listing(config: pytest.Config, directory: Path) -> None:
    """Wait, in a worker, until the tests are listed."""
    deadline = time.monotonic() + PATIENCE_S
    while not (directory / LISTING).exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the tests were not listed in time")
        time.sleep(0.02)
    ids: list[str] | None = json.loads((directory / LISTING).read_text())
    if ids is None:
        return
    listing: dict[str, list[str]] = {}
    for each in ids:
        file, _, name = each.partition("::")
        listing.setdefault(file, []).append(name)
    config.stash[_listing] = listing
    config.stash[_places] = {each: place for place, each in enumerate(ids)}


def take_loading_seconds() -> float:
    """Processor time for loading files since the last call: it is not that of the tests."""
    global _loading_s
    taken, _loading_s = _loading_s, 0.0
    return taken


class ListedFile(pytest.File):
    """A file of tests that is not imported before one of its tests runs."""

    _loaded: dict[str, pytest.Item] | None = None

    def collect(self) -> Iterator[pytest.Item]:
        for name in self.config.stash[_listing].get(self.nodeid, ()):
            yield Placeholder.from_parent(self, name=name)

    def load(self) -> Mapping[str, pytest.Item]:
        """Import the file. Returns its tests by their ids."""
        global _loading_s
        if self._loaded is None:
            began = time.process_time()
            gc.disable()  # next to everything that is imported stays
            try:
                module: pytest.Module = pytest.Module.from_parent(self.parent, path=self.path)
                self._loaded = {item.nodeid: item for item in self.session.genitems(module)}
            finally:
                gc.enable()
            if time.process_time() - began > MUCH_S:
                gc.collect()
                gc.freeze()
            _loading_s += time.process_time() - began
        return self._loaded


class Placeholder(pytest.Item):
    """A test of a file that may not be imported yet."""

    def load(self) -> pytest.Item:
        """The test; this placeholder, which fails, if the file has no such test in this process."""
        assert isinstance(self.parent, ListedFile)
        return self.parent.load().get(self.nodeid, self)

    def runtest(self) -> None:
        pytest.fail("the process that leads the run has collected this test, and this worker has not", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> ListedFile | None:
    if _listing not in parent.config.stash:
        return None
    return ListedFile.from_parent(parent, path=module_path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if places := config.stash.get(_places, None):
        items.sort(key=lambda item: places[item.nodeid])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not isinstance(item, Placeholder) or (loaded := item.load()) is item:
        return None
    following = nextitem.load() if isinstance(nextitem, Placeholder) else nextitem
    item.ihook.pytest_runtest_protocol(item=loaded, nextitem=following)
    return True
