"""One broker for all tests of this folder; each test has topics of its own. `spark_session.py` has the session."""

from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.testing import LocalBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """Retention does not run: the timestamps of test records are very old, so it would delete them."""
    with ottla.testing.broker(log_initial_task_delay_ms=86_400_000) as running:
        yield running
