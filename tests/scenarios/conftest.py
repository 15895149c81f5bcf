"""One broker in a thread, shared by all scenarios that do not change its settings. Each has a topic of its own.

Scenarios about access have a `guarded_broker` as their fixture `broker`, and share the users `root` and `alice`.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.raw_client import RawClient
from tests.scenarios.access import connect_as, delete_all_acls

_numbers = count()


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[LocalBroker]:
    # The timestamps of test records are very old, so retention would delete them: it does not run here.
    with local_broker(log_initial_task_delay_ms=86_400_000) as running:
        yield running


@pytest.fixture
def client(shared_broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(shared_broker.host, shared_broker.port) as connected:
        yield connected


@pytest.fixture
def other(shared_broker: LocalBroker) -> Iterator[RawClient]:
    """A second connection, for use while the first one waits."""
    with RawClient(shared_broker.host, shared_broker.port, "other") as connected:
        yield connected


@pytest.fixture
def topic(shared_broker: LocalBroker) -> str:
    """A new topic with one partition and the default settings."""
    name = f"topic-{next(_numbers)}"
    shared_broker.create_topic(name)
    return name


@pytest.fixture
def root(broker: LocalBroker) -> Iterator[RawClient]:
    """Who may do everything. Before and after a test there are no ACLs."""
    with connect_as("root", broker) as connected:
        delete_all_acls(connected)
        yield connected
        delete_all_acls(connected)


@pytest.fixture
def alice(broker: LocalBroker) -> Iterator[RawClient]:
    """Who may do what the ACLs of the test allow."""
    with connect_as("alice", broker) as connected:
        yield connected
