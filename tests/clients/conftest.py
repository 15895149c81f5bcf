"""One broker in a child process, shared by all tests of this folder that do not kill it. Each test has its own
topics."""

from collections.abc import Iterator
from itertools import count

import pytest

from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker

LARGEST_MESSAGE = 12_000_000

_numbers = count()


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    # Records have old timestamps, so that a seed gives the same ones. Retention would delete them, so it does not run.
    with local_broker(process=True, message_max_bytes=LARGEST_MESSAGE, log_initial_task_delay_ms=86_400_000) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """An unused name. The topic is not created."""
    return f"topic-{next(_numbers)}"
