"""What the tests of whole clusters share."""

import pytest

from benchmarks.peers.apache_kafka import Unavailable, find_executable
from benchmarks.peers.zookeeper import find_jars
from tests.needs import skip_without


@pytest.fixture(scope="session")
def zookeeper_jars() -> None:
    """Java and the jars of ZooKeeper are there."""
    try:
        find_executable("java")
        find_jars()
    except Unavailable as reason:
        skip_without("ZooKeeper", str(reason))
