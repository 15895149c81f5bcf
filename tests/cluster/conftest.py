"""What the tests of whole clusters share."""

import pytest

from tests.needs import skip_without
from tests.zookeeper_server import missing


@pytest.fixture(scope="session")
def zookeeper_jars() -> None:
    """Java and the jars of ZooKeeper are there."""
    if reason := missing():
        skip_without("ZooKeeper", reason)
