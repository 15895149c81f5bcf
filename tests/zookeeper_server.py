"""ZooKeeper for the tests: one server for all tests of a process, with a path of its own for each test.

A test that stops ZooKeeper starts servers of its own. All of it runs where there is Java, and PySpark with its jars;
otherwise the tests that need ZooKeeper are skipped, with the reason.
"""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.cluster.zookeeper_server import (
    ZooKeeperServer,
    build_ensemble,
    find_classpath,
    find_java,
    start_ensemble,
)
from ottla.cli.command_error import CommandError
from tests.needs import skip_without

TICK_MS = 200
"""Sessions of tests may be as short as 0.4 s."""

_numbers = itertools.count(1)


@functools.cache
def missing() -> str:
    """Why ZooKeeper cannot run here; empty if it can."""
    try:
        find_java()
        find_classpath()
    except CommandError as reason:
        return str(reason)
    return ""


@pytest.fixture(scope="session")
def shared_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    if reason := missing():
        skip_without("ZooKeeper", reason)
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS, is_durable=False)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def zookeeper(shared_zookeeper: ZooKeeperServer) -> str:
    """A zookeeper.connect setting with a path that no other test uses."""
    return f"{shared_zookeeper.address}/tests/{next(_numbers)}"


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server that the test may kill, pause and start again."""
    if reason := missing():
        skip_without("ZooKeeper", reason)
    server = ZooKeeperServer(tmp_path / "zookeeper", tick_ms=TICK_MS, is_durable=False)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[list[ZooKeeperServer]]:
    """Three servers that form one ZooKeeper."""
    if reason := missing():
        skip_without("ZooKeeper", reason)
    servers = build_ensemble(tmp_path, 3, tick_ms=TICK_MS, is_durable=False)
    try:
        start_ensemble(servers)
        yield servers
    finally:
        for server in servers:
            server.remove()
