"""How pytest-xdist divides the suite among its worker processes.

A worker takes whole files. Tests that share something expensive form a group, and a group runs in one worker: its tests
share one Spark session or one Apache Kafka, however many workers there are. Groups take longest, so they are handed out
first. A worker appends the group to the ids of its tests, because ids are all that the scheduler knows of them.
"""

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

FIXTURES = {"spark": "spark", "kafka_tools": "kafka"}
"""Expensive fixture -> the group of the tests that use it; the first that fits."""
FILES = {
    "tests/spark/test_cluster.py": "java",
    "tests/spark/test_demo.py": "java",
    "tests/spark/test_kills.py": "java",
}
"""Files that start JVMs of their own, one after the other, so that memory suffices."""
GROUPS = ("spark", "kafka", "java")
WORKERS_PER_CORE = 2
"""Tests that use clients, Spark or Apache Kafka mostly wait."""
WORKERS_MAX = 8


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # work is handed out in the order of the collection, not by size


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`."""
    return min(WORKERS_PER_CORE * (os.cpu_count() or 1), WORKERS_MAX)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # no type information
        def _split_scope(self, nodeid: str) -> str:
            return split_id(nodeid)[1]

    return GroupScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    ranks: dict[str, int] = {}
    for item in items:
        group = group_of(item.location[0], getattr(item, "fixturenames", ()))
        if group is not None:
            item._nodeid = f"{item.nodeid}@{group}"  # type: ignore[attr-defined]  # as xdist itself does
        ranks[item.nodeid] = len(GROUPS) if group is None else GROUPS.index(group)
    items.sort(key=lambda item: ranks[item.nodeid])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """People see the id without the group, so that it can be given to pytest again."""
    report.nodeid = split_id(report.nodeid)[0]


def group_of(file: str, fixtures: "tuple[str, ...] | list[str]") -> str | None:
    """The group of a test, by its file's path in the project and its fixtures; None for most."""
    found = (group for fixture, group in FIXTURES.items() if fixture in fixtures)
    return FILES.get(file) or next(found, None)


def split_id(nodeid: str) -> tuple[str, str]:
    """The id of a test without its group, and what is handed out with it: the group, or the file."""
    name, _, group = nodeid.rpartition("@")
    return (name, group) if group in GROUPS else (nodeid, nodeid.split("::", 1)[0])
