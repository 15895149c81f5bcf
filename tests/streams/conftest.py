"""A broker for all tests of this folder; each test has topics and an app of its own."""

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.testing import LocalBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """Not the broker that tests of other folders share: their topics have the same names.

    Retention does not run: the timestamps of test records are very old, so it would delete them after half a minute.
    """
    with ottla.testing.broker(log_initial_task_delay_ms=86_400_000) as running:
        yield running
