"""One broker, as a child, for all tests of this folder that leave it alive; each has topics of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker

LARGEST_MESSAGE = 12_000_000

_numbers = count()


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    # Records are dated long ago, so that a seed gives the same ones: retention, which would take them, does not run.
    with local_broker(process=True, message_max_bytes=LARGEST_MESSAGE, log_initial_task_delay_ms=86_400_000) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A name that nobody has used; the topic is not created."""
    return f"topic-{next(_numbers)}"
