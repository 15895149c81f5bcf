"""How pytest-xdist divides the suite among its worker processes.

A worker takes whole files. Tests that share something expensive form a group, and a group runs in one worker: its tests
share one Spark session or one Apache Kafka, however many workers there are. Tests that use Spark are two groups,
because one of them would take longer than everything else together. Groups take longest, so they are handed out first;
the last are the many short files of `tests/unit`. Whoever collects knows which fixtures a test uses: the process that
leads the run, or, if tests were selected one by one, the workers, which tell it by a file (`loading.py`).
"""

import json
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.loading import Placeholder, await_listing, leads_workers, list_tests

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

FIXTURES = {"spark": "spark", "kafka_tools": "kafka"}
"""Expensive fixture -> the group of the tests that use it; the first that fits."""
STREAMS = ("tests/streams/", "tests/unit/streams/")
"""Folders whose tests with Spark are a group of their own."""
FILES = {
    "tests/spark/test_cluster.py": "java",
    "tests/spark/test_demo.py": "java",
    "tests/spark/test_kills.py": "java",
}
"""Files that start JVMs of their own, one after the other, so that memory suffices."""
GROUPS = ("spark", "streams", "kafka", "java")
WORKERS_PER_CORE = 2
"""Tests that use clients, Spark or Apache Kafka mostly wait."""
WORKERS_MAX = 8
SHARED = "directory_of_groups"
"""The name under which workers are given the directory of the file that they write."""


def pytest_configure(config: pytest.Config) -> None:
    if not leads_workers(config):
        return
    config.option.loadscopereorder = False  # work is handed out in the order of the collection, not by size
    config.stash[_directory] = Path(tempfile.mkdtemp(prefix="ottla-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(config.stash[_directory]))


_directory = pytest.StashKey[Path]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[SHARED] = str(node.config.stash[_directory])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`."""
    return min(WORKERS_PER_CORE * (os.cpu_count() or 1), WORKERS_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # no type information
        groups: dict[str, str] | None = None

        def _split_scope(self, nodeid: str) -> str:
            if self.groups is None:
                self.groups = read_groups(config.stash[_directory])
            return self.groups.get(nodeid) or nodeid.split("::", 1)[0]

    return GroupScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    config = session.config
    if leads_workers(config):
        list_tests(session, config.stash[_directory])
    elif hasattr(config, "workerinput"):
        await_listing(config, Path(config.workerinput[SHARED]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if leads_workers(config):
        directory = config.stash[_directory]
    elif hasattr(config, "workerinput") and not any(isinstance(item, Placeholder) for item in items):
        directory = Path(config.workerinput[SHARED])
    else:
        return
    groups: dict[str, str] = {}
    for item in items:
        if group := group_of(item.location[0], getattr(item, "fixturenames", ())):
            groups[item.nodeid] = group
    write_groups(directory, groups)
    items.sort(key=lambda item: GROUPS.index(groups[item.nodeid]) if item.nodeid in groups else len(GROUPS))


def write_groups(directory: Path, groups: dict[str, str]) -> None:
    """Every worker writes the same: whoever is last replaces the file by an equal one."""
    partial = directory / f"{os.getpid()}.json"
    partial.write_text(json.dumps(groups))
    partial.replace(directory / "groups.json")


def read_groups(directory: Path) -> dict[str, str]:
    """Test -> group, of the tests that are in one."""
    found: dict[str, str] = json.loads((directory / "groups.json").read_text())
    return found


def group_of(file: str, fixtures: Collection[str]) -> str | None:
    """The group of a test, by its file's path in the project and its fixtures; None for most."""
    found = next((group for fixture, group in FIXTURES.items() if fixture in fixtures), None)
    if found == "spark" and file.startswith(STREAMS):
        return "streams"
    return FILES.get(file) or found
